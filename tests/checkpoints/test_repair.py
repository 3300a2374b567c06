"""What a repair gives, what it may do, and what it refuses."""

import pytest
import torch
from torch import nn

from migrate_kit.checkpoints.diagnose import diagnose
from migrate_kit.checkpoints.load import load_checkpoint
from migrate_kit.checkpoints.state import StateDict
from migrate_kit.errors import MigrateError
from tests.checkpoints.diagnosed import GPT, Conv1D, apart, randomized, small

STATE = randomized(small()).state_dict()


def wrapped(state):
    return {f"module.{k}": v for k, v in state.items()}


def test_it_is_a_state_dict_in_the_models_order_with_its_versions():
    model = small()
    repaired = diagnose(model, dict(reversed(wrapped(STATE).items()))).repair()
    assert isinstance(repaired, StateDict)
    assert list(repaired) == list(model.state_dict())
    assert repaired._metadata == model.state_dict()._metadata
    assert model.load_state_dict(repaired).missing_keys == []


def test_renamed_tensors_are_the_files_own_memory():
    repaired = diagnose(small(), wrapped(STATE)).repair()
    assert repaired["4.weight"].data_ptr() == STATE["4.weight"].data_ptr()


def test_made_tensors_are_made_when_they_are_read():
    read = []
    source = randomized(GPT(Conv1D)).state_dict()
    lazy = StateDict.of(source)
    for name, entry in lazy.entries.items():
        object.__setattr__(entry, "read", lambda n=name, e=entry.read: read.append(n) or e())
    repaired = diagnose(GPT(), lazy).repair()
    assert read == []
    name = "transformer.h.0.attn.c_attn.weight"
    assert repaired.entries[name].shape == (48, 16)
    assert torch.equal(repaired[name], source[name].t())
    assert read == [name]


def test_a_repaired_file_stays_in_its_file(tmp_path):
    torch.save(wrapped(STATE), tmp_path / "net.pth")
    model = small()
    repaired = diagnose(model, load_checkpoint(tmp_path / "net.pth")).repair()
    model.load_state_dict(repaired)
    assert torch.equal(model[4].weight, STATE["4.weight"])


def test_a_repaired_state_dict_can_be_saved_and_diagnosed_again(tmp_path):
    repaired = diagnose(small(), wrapped(STATE)).repair()
    torch.save(dict(repaired), tmp_path / "net.pth")
    assert diagnose(small(), tmp_path / "net.pth").ok
    assert diagnose(small(), repaired).ok


def test_half_precision_stays_that_until_it_is_loaded():
    half = {k: v.half() if v.is_floating_point() else v for k, v in wrapped(STATE).items()}
    model = small()
    report = diagnose(model, half)
    assert report.repair()["4.weight"].dtype == torch.float16
    model.load_state_dict(report.repair())
    assert model[4].weight.dtype == torch.float32
    assert any("float16 for float32" in f.what and f.level == "info" for f in report.findings)


def test_complex_into_real_is_a_warning():
    state = {"weight": torch.ones(2, 3, dtype=torch.complex64), "bias": torch.ones(2)}
    report = diagnose(nn.Linear(3, 2), state)
    assert [f.level for f in report.findings] == ["warning"]


@pytest.mark.parametrize("argument", ["head", "positions", "missing", "order", "proof"])
def test_a_word_that_is_none_of_the_known_ones(argument):
    with pytest.raises(MigrateError, match=f"{argument} is 'perhaps'"):
        diagnose(small(), STATE).repair(**{argument: "perhaps"})


def test_everything_that_is_in_the_way_is_in_one_error():
    state = {k: v for k, v in STATE.items() if not k.startswith(("4.", "1.running"))}
    state |= {"4.weight": torch.zeros(7, 32), "4.bias": torch.zeros(7)}
    state["0.weight"] = torch.zeros(8, 1, 3, 3)
    with pytest.raises(MigrateError) as caught:
        diagnose(small(), state).repair()
    assert "2 places have no value" in caught.value.what
    for name in ("4.weight", "1.running_mean", "0.weight"):
        assert name in caught.value.what
    for word in ('head="keep"', 'missing="keep"', "sizes it was trained with"):
        assert word in caught.value.fix


def test_what_may_be_missing_keeps_the_models_own():
    state = {k: v for k, v in STATE.items() if not k.startswith("0.")}
    state["0.weight"] = torch.zeros(8, 1, 3, 3)
    model = small()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    model.load_state_dict(diagnose(model, state).repair(missing="keep"))
    assert torch.equal(model[0].weight, before["0.weight"])
    assert torch.equal(model[0].bias, before["0.bias"])
    assert torch.equal(model[4].bias, STATE["4.bias"])


def test_a_model_on_the_meta_device_has_nothing_to_keep():
    with torch.device("meta"):
        model = small()
    state = {k: v for k, v in STATE.items() if k not in ("4.bias", "1.num_batches_tracked")}
    report = diagnose(model, state)
    with pytest.raises(MigrateError, match="meta device"):
        report.repair(missing="keep")
    state["4.bias"] = STATE["4.bias"]
    repaired = diagnose(model, state).repair()
    assert int(repaired["1.num_batches_tracked"]) == 0
    model.load_state_dict(repaired, assign=True)
    assert not any(p.is_meta for p in model.parameters())


def test_position_embeddings_may_be_kept():
    class Net(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.full((1, count, 4), float(count)))

    model = Net(16)
    report = diagnose(model, Net(9).state_dict())
    model.load_state_dict(report.repair(positions="keep"))
    assert model.pos_embed.unique().tolist() == [16]
    model.load_state_dict(report.repair(positions="resize"))
    assert torch.allclose(model.pos_embed, torch.full((1, 16, 4), 9.0), atol=1e-5)


def test_a_grid_in_two_axes_is_resized_too():
    class Net(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.ones(1, 3, size, size))

    model = Net(6)
    model.load_state_dict(diagnose(model, Net(4).state_dict()).repair(positions="resize"))
    assert model.pos_embed.shape == (1, 3, 6, 6)


def test_positions_that_are_no_square_are_not_resized():
    class Net(nn.Module):
        def __init__(self, count):
            super().__init__()
            self.pos_embed = nn.Parameter(torch.zeros(1, count, 4))

    with pytest.raises(MigrateError, match="shapes differ"):
        diagnose(Net(16), Net(13).state_dict()).repair(positions="resize")


def test_a_head_by_another_name_and_another_count_keeps_only_the_head():
    state = {k.replace("4.", "fc."): v for k, v in small(7).state_dict().items()}
    model = small()
    report = diagnose(model, state)
    assert {r.rule for r in report.rows if r.status == "shape differs"} == {"the only layer left"}
    model.load_state_dict(report.repair(head="keep"))
    assert torch.equal(model[1].weight, state["1.weight"])


def test_two_heads_of_another_count_are_both_named():
    class Net(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.boxes, self.classes = nn.Conv2d(4, a, 1), nn.Conv2d(4, b, 1)

    model = Net(4, 20)
    report = diagnose(model, Net(8, 80).state_dict())
    assert len(report.mismatched) == 4
    model.load_state_dict(report.repair(head="keep"))


def test_the_original_is_not_touched_by_what_is_loaded():
    source = randomized(small())
    model = small()
    model.load_state_dict(diagnose(model, wrapped(source.state_dict())).repair())
    with torch.no_grad():
        model[4].weight.zero_()
    assert apart(source, model, torch.ones(1, 3, 4, 4)) > 0


def test_a_set_whose_names_fit_is_taken_from_the_file(tmp_path):
    average = randomized(small(), 3).state_dict()
    other = nn.LSTM(3, 3).state_dict()
    torch.save({"state_dict": other, "ema": average, "epoch": 1}, tmp_path / "net.pth")
    report = diagnose(small(), tmp_path / "net.pth")
    assert torch.equal(report.repair()["4.bias"], average["4.bias"])
    assert any("its names fit" in f.what for f in report.findings)
    torch.save({"state_dict": STATE, "ema": average}, tmp_path / "net.pth")
    report = diagnose(small(), tmp_path / "net.pth")
    assert torch.equal(report.repair()["4.bias"], STATE["4.bias"])
    assert any("other sets of tensors" in f.what for f in report.findings)
