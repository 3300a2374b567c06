"""Each setting of the table: wrong it shows, named it is corrected, undone it is wrong again."""

import inspect

import numpy as np
import pytest
import torch
from torchvision.ops import FrozenBatchNorm2d

from migrate_kit.errors import MigrateError
from migrate_kit.porting.kinds.tabled import default_rows
from migrate_kit.porting.settings import kind_of, settings
from tests.porting import layers
from tests.porting.layers import M, ms
from tests.porting.test_rules import COARSE
from tests.porting.wrong import WRONG

PAIRS = [pytest.param(pair, id=str(pair)) for pair in WRONG]
NOISY = ("Softmin",)  # its kernel of exp rounds as coarsely as Softmax's


def built(pair):
    module, cell = layers.randomize(pair.torch_layer()), pair.cell()
    cell.set_train(pair.train)
    module.train(pair.train)
    return module, cell


def loaded(module, cell):
    """Copy what fits: a bias that the cell has not yet stays behind."""
    places = dict(cell.parameters_and_names())
    state = module.state_dict()
    for move in layers.moves(module, cell):
        if move.moved:
            value = layers.forward(move.transform, state[move.torch_name]).numpy()
            places[move.cell_name].set_data(ms.Tensor(value))
        elif move.transform in ("ones", "zeros"):
            place = places[move.cell_name]
            place.set_data(getattr(layers.ops, move.transform)(place.shape, place.dtype))


def outputs(cell, inputs):
    """Return the outputs, or None where the cell does not even run."""
    try:
        return layers.run_cell(cell, inputs, {})
    except (RuntimeError, TypeError, ValueError):
        return None


def effect(found, exact):
    """Say what a wrong setting does, as the table says it."""
    if found is None:
        return "refused"
    if [y.shape for y in found] != [y.shape for y in exact]:
        return "another shape"
    return f"{max(abs(f - e).max() for f, e in zip(found, exact, strict=True)):.2g}"


def said_of(pair):
    (said,) = [
        row["effect"]
        for row in default_rows()
        if (row["torch_layer"], row["cell"], row["cell_argument"]) == (*pair.pair, pair.what)
    ]
    return said


@pytest.mark.parametrize("pair", PAIRS)
def test_a_wrong_setting_is_named_corrected_and_undone(pair):
    module, cell = built(pair)
    assert kind_of(module, cell) is not None
    loaded(module, cell)
    inputs = layers.arrays(pair.inputs)
    values = {name: p.asnumpy().copy() for name, p in cell.parameters_and_names()}
    limit = max(2, COARSE.get(pair.pair[0], 2), 32 * (pair.pair[0] in NOISY))
    if pair.runs:
        exact, host = layers.references(module, inputs, {})
        was = outputs(cell, inputs)
        assert was is None or layers.worst(was, exact, host) > 50 * limit
        random = pair.train and pair.what in ("p", "dropout")
        assert said_of(pair) == ("at random" if random else effect(was, exact))
    # The first call leaves notes of its own in the cell.
    before, primitives = dict(vars(cell)), dict(cell._primitives)

    found = {difference.what: difference for difference in settings(module, cell)}
    assert pair.what in found
    assert found[pair.what].can_apply != pair.obstacle
    if pair.obstacle:
        with pytest.raises(MigrateError, match="cannot be changed"):
            found[pair.what].apply(cell)
        return
    for difference in found.values():
        difference.apply(cell)
    assert settings(module, cell) == []
    if pair.runs:
        loaded(module, cell)
        assert layers.worst(layers.run_cell(cell, inputs, {}), exact, host) <= limit
    for difference in found.values():  # in the order of applying, not backwards
        difference.undo(cell)
    assert {d.what for d in settings(module, cell)} == found.keys()
    assert vars(cell).keys() == before.keys()
    assert all(vars(cell)[name] is value for name, value in before.items())
    assert cell._primitives == primitives
    if pair.runs and not random:
        for name, place in cell.parameters_and_names():  # a batch norm has learnt since
            place.set_data(ms.Tensor(values[name]))
        again = outputs(cell, inputs)
        assert (was is None) == (again is None)
        assert not was or [y.tobytes() for y in again] == [y.tobytes() for y in was]


def test_every_setting_of_the_table_has_a_wrong_pair():
    tested = {(*pair.pair, pair.what) for pair in WRONG}
    rows = {
        (row["torch_layer"], row["cell"], row["cell_argument"])
        for row in default_rows()
        if row["matters"] != "start"
    }
    assert rows == tested


@pytest.mark.parametrize("row", default_rows(), ids=lambda r: f"{r['cell']}-{r['cell_argument']}")
def test_the_table_names_arguments_that_exist(row):
    layer = getattr(torch.nn, row["torch_layer"], FrozenBatchNorm2d)
    known = set(inspect.signature(layer).parameters)
    if issubclass(layer, torch.nn.RNNBase):  # it passes its arguments on
        known |= set(inspect.signature(torch.nn.RNNBase).parameters) | {"nonlinearity"}
    assert set(filter(None, row["torch_argument"].split(", "))) <= known
    assert hasattr(M, row["cell"].removeprefix("nn."))


def test_a_cell_built_as_the_lines_say_has_no_difference():
    module = torch.nn.Conv2d(4, 6, 3, 2, 1)
    lines = [d.line for d in settings(module, M.Conv2d(4, 6, 3, 2))]
    assert lines == ["has_bias=True", "pad_mode='pad', padding=1"]
    right = eval(f"M.Conv2d(4, 6, 3, 2, {', '.join(lines)})")  # noqa: S307 -- the package's own text
    assert settings(module, right) == []


@pytest.mark.parametrize(
    ("module", "cell"),
    [
        (lambda: torch.nn.Conv2d(4, 6, 3, padding=1), lambda: M.Conv2d(4, 6, 3, has_bias=True)),
        (lambda: torch.nn.MaxPool2d(3, 1, 1), lambda: M.MaxPool2d(3, 1, pad_mode="same")),
        (lambda: torch.nn.BatchNorm2d(4), lambda: M.BatchNorm2d(4)),
        (lambda: torch.nn.Dropout(0.1), lambda: M.Dropout(keep_prob=0.9)),
    ],
)
def test_another_spelling_of_the_same_is_no_difference(module, cell):
    assert settings(module(), cell()) == []


def test_the_first_argument_of_dropout_is_what_is_kept():
    (difference,) = settings(torch.nn.Dropout(0.1), M.Dropout(0.1))
    assert (difference.what, difference.matters) == ("p", "training")
    assert difference.cell_value == pytest.approx(0.9)


def test_an_axis_is_the_same_from_either_end_if_the_rank_is_known():
    module, cell = torch.nn.Softmax(1), M.Softmax()
    assert [d.what for d in settings(module, cell)] == ["axis"]
    assert settings(module, cell, rank=2) == []
    assert [d.what for d in settings(module, cell, rank=3)] == ["axis"]


def test_settings_are_undone_in_any_order():
    module, cell = torch.nn.MaxPool2d(3, 2, 1, ceil_mode=True), M.MaxPool2d(2)
    pool = cell.max_pool
    found = settings(module, cell)
    assert len(found) == 4
    for difference in found:
        difference.apply(cell)
    for difference in (found[2], found[0], found[3]):
        difference.undo(cell)
        assert difference.what in {d.what for d in settings(module, cell)}
    found[1].undo(cell)
    assert cell.max_pool is pool


def test_a_loss_keeps_its_class_weights():
    weight = ms.Tensor(np.float32([1, 2, 3]))
    cell = M.CrossEntropyLoss(weight)
    (difference,) = settings(
        torch.nn.CrossEntropyLoss(torch.tensor([1.0, 2, 3]), label_smoothing=0.1), cell
    )
    difference.apply(cell)
    assert cell.weight is weight
    assert cell.label_smoothing == 0.1


def test_the_padding_inside_a_network_keeps_the_bias_under_its_name():
    net = M.SequentialCell(M.Conv2d(4, 6, 3), M.ReLU())
    for difference in settings(torch.nn.Conv2d(4, 6, 3), net[0]):
        difference.apply(net[0])
    assert [p.name for p in net.get_parameters()] == ["0.weight", "0.bias"]
    assert net(ms.Tensor(layers.arrays([(1, 4, 5, 5)])[0])).shape == (1, 6, 3, 3)


def test_layers_that_are_no_pair_have_no_settings():
    assert settings(torch.nn.Conv2d(4, 6, 3), M.ReLU()) == []


def test_a_value_that_mindspore_refuses_leaves_the_cell_as_it_was():
    cell = M.Dropout(p=0.5)
    before = dict(vars(cell))
    (difference,) = settings(torch.nn.Dropout(1.0), cell)
    with pytest.raises(MigrateError, match="refuses p=1"):
        difference.apply(cell)
    assert vars(cell) == before
