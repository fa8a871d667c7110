"""A warm load goes through few modules, and its calls between them are few: plans, fingerprints and checks are kept."""

import neuralqx_struct as s
from benchmarks.calls import calls_between_modules


def test_calls_between_modules_of_warm_loads(tmp_path):
    schema = s.load_schema("schemas/vmc_state")
    old = "tests/golden/format-1/vmc_state_1"
    new = schema.load(old).export(tmp_path / "new")
    for path, most in ((old, 2000), (new, 500)):
        for _ in range(3):
            schema.load(path)
        found = calls_between_modules(lambda path=path: schema.load(path))
        assert found.total() <= most, found.most_common(10)
