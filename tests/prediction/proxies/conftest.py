import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

TINY = {
    "bert": {
        "vocab_size": 256, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 32, "max_position_embeddings": 64,
    },
    "distilbert": {
        "vocab_size": 256, "dim": 16, "n_layers": 1, "n_heads": 2, "hidden_dim": 32,
        "max_position_embeddings": 64,
    },
}  # fmt: skip


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="package")
def tiny():
    return TINY


@pytest.fixture(scope="package")
def rows():
    from orsched.prediction import make_corpus

    return make_corpus("chat", 240, 1)


@pytest.fixture(scope="package")
def trained(rows):
    """Return a function that trains a tiny model fast, on the CPU."""
    from orsched.prediction import train_proxy
    from orsched.prediction.proxies.network import Phase

    two = (Phase(2, 3e-3), Phase(2, 3e-3, frozen=True))

    def train(kind, head=None, **options):
        encoder = kind.partition("_")[0]
        options = {
            "model": TINY[encoder], "device": "cpu", "seed": 2,
            "phases": (Phase(3, 3e-3),) if kind == "distilbert_mico" else two, **options,
        }  # fmt: skip
        return train_proxy(options.pop("data", rows), kind, head=head, **options)

    return train


@pytest.fixture(scope="package")
def models(trained):
    return {kind: trained(kind) for kind in ("bert_ssjf", "distilbert_mico", "bert_ranker")}
