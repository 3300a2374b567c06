"""Small networks are run in one thread: on a busy machine several wait for each other."""

import pytest
import torch


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Run a module's tests in one thread; import it to use it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
