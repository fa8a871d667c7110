"""Python classes as versions of a schema: identity, migrations on load, nesting, coexistence, wrong keywords."""

import enum
import json
import pickle
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float32, Float64

import neuralqx_struct as s
from neuralqx_struct import bundle, references
from neuralqx_struct.documents import bound as documents
from neuralqx_struct.evolution.proof import prove
from neuralqx_struct.schema import uses
from neuralqx_struct.struct.meta import StructABCMeta
from tests.builders import every, refused

steps = s.steps


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    """Each test has claims of its own."""
    monkeypatch.setattr("neuralqx_struct.references._BOUND", {})
    monkeypatch.setattr(uses, "_LOADED", {})


def forgotten():
    """What a later process knows: nothing of the classes so far."""
    references._BOUND.clear()
    uses._LOADED.clear()


def define(name, version, fields, *, schema="lab.state", migrations=None, defaults=None):
    def body(namespace):
        namespace["__annotations__"] = fields
        namespace["__module__"] = __name__
        namespace.update(defaults or {})

    options = {"schema": schema, "version": version, "migrations": migrations}
    return types.new_class(
        name, (s.Struct,), {k: v for k, v in options.items() if v is not None}, body
    )


W = Float32[Array, "n"]


def first():
    return define("State", 1, {"w": W, "old": float, "rank": int})


def second():
    return define(
        "State",
        2,
        {"w": W, "new": float, "label": str},
        migrations=[
            steps.migration(
                1,
                [
                    steps.rename(field="old", to="new"),
                    steps.remove(field="rank", undo_default=0),
                    steps.add(field="label", default="none"),
                ],
            )
        ],
    )


def value(cls, **more):
    return cls(w=jnp.arange(3, dtype="float32"), **more)


# ---------------------------------------------------------------------------------------------------------------------
# Identity.


def test_the_manifest_says_who_wrote_it(tmp_path):
    first()
    new = second()
    path = value(new, new=1.5, label="x").export(tmp_path / "ckpt")
    document = bundle.read_manifest(path)
    assert document["manifest"]["type"] == "lab.state@2:State"
    assert document["schema"]["id"] == "lab.state" and document["schema"]["version"] == 2
    assert [(d["schema"], d["version"]) for d in document["schemas"]] == [
        ("lab.state", 1),
        ("lab.state", 2),
    ]
    assert [next(iter(step)) for step in document["schemas"][1]["migrations"][0]["steps"]] == [
        "rename",
        "remove",
        "add",
    ]
    assert s.validate(path) == [] and s.verify(path) == []


def test_schema_of_gives_identity_and_migrations():
    old, new = first(), second()
    document = s.schema_of(new)
    assert (document.id, document.version, document.root) == ("lab.state", 2, "State")
    assert document.migration_from(1) == new.__nqx_binding__.migrations[0]
    assert s.load_schema(s.dump_schema(new)).document == document
    assert prove(s.schema_of(old), document) == []
    assert s.schema_of(new, schema="lab.other", version=7).id == "lab.other"
    assert s.schema_of(new) is s.schema_of(new)


def test_what_the_language_cannot_say_is_told_for_these_classes_too():
    cls = define("State", 1, {"w": jax.Array})
    for _ in range(2):
        report = []
        assert s.schema_of(cls, report=report).structs["State"].fields["w"].text == "pytree"
        assert [d.path for d in report] == ["State.w"]


def test_an_old_bundle_loads_as_the_new_class_with_the_documents_that_it_carries(tmp_path):
    old = first()
    path = value(old, old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    new = second()
    report = []
    assert new.load(path, report=report) == value(new, new=2.5, label="none")
    assert {(d.code, d.path) for d in report} == {("NQX425", "$.rank"), ("NQX425", "$.label")}
    again = s.load(path)
    assert type(again) is not old and type(again).__name__ == "State" and again.old == 2.5


def test_two_versions_of_one_schema_coexist(tmp_path):
    old, new = first(), second()
    a = value(old, old=2.5, rank=0).export(tmp_path / "a")
    b = value(new, new=2.5, label="none").export(tmp_path / "b")
    assert type(s.load(a)) is old and type(s.load(b)) is new
    assert new.load(a) == new.load(b) and old.load(b) == old.load(a)
    assert old.from_state_dict(new.load(a).to_state_dict()).old == 2.5


def test_steps_of_an_earlier_class_in_between_are_taken(tmp_path):
    old = first()
    path = value(old, old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    second()
    third = define(
        "State",
        3,
        {"w": W, "newest": float, "label": str},
        migrations=[steps.migration(2, [steps.rename(field="new", to="newest")])],
    )
    assert third.load(path) == value(third, newest=2.5, label="none")


CHAIN = [
    steps.migration(
        1, [steps.rename(field="old", to="new"), steps.remove(field="rank", lossy=True)]
    ),
    steps.migration(2, []),
    steps.migration(
        3, [steps.rename(field="new", to="newest"), steps.add(field="label", default="")]
    ),
]


def test_the_newest_class_alone_may_say_the_whole_way(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    head = define("State", 4, {"w": W, "newest": float, "label": str}, migrations=CHAIN)
    assert head.load(path) == value(head, newest=2.5, label="")
    assert s.validate(head.load(path).export(tmp_path / "new")) == []
    document = s.schema_of(head)
    assert [m.from_version for m in document.migrations] == [3, 2, 1]
    assert s.load_schema(s.dump_schema(head)).document == document
    forgotten()
    value(define("State", 2, {"w": W, "new": float}), new=1.5).export(tmp_path / "two")
    head = define("State", 4, {"w": W, "newest": float, "label": str}, migrations=CHAIN[::-1])
    assert head.load(tmp_path / "two").newest == 1.5 and head.load(path).newest == 2.5


def test_without_steps_aliases_defaults_and_exact_promotion_serve(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    fields = {"w": Float64[Array, "n"], "new": float, "rank": int, "extra": int}
    new = define(
        "State",
        2,
        fields,
        defaults={"new": s.field(aliases=["old"]), "extra": s.field(default=4, kw_only=True)},
    )
    report = []
    loaded = new.load(path, report=report, as_numpy=True)
    assert (loaded.new, loaded.extra, loaded.w.dtype) == (2.5, 4, np.float64)
    assert {d.path for d in report} >= {"$.extra", "$.w"}


def test_the_newer_bundle_is_downgraded_by_code_that_knows_the_old_version_only(tmp_path):
    first()
    path = value(second(), new=2.5, label="x").export(tmp_path / "ckpt")
    forgotten()
    old = first()
    assert old.load(path) == value(old, old=2.5, rank=0)
    done = s.migrate(path, tmp_path / "down", to=1)
    assert done.plan.to_version == 1 and old.load(tmp_path / "down") == value(old, old=2.5, rank=0)


def test_a_schema_file_may_hold_the_earlier_version(tmp_path):
    old = s.load_schema(
        'language: "1"\nschema: lab.state\nversion: 1\nroot: State\nstructs:\n'
        '  State: {fields: {w: "float32[n]", old: float, rank: int}}\n'
    )
    path = value(old.State, old=2.5, rank=3).export(tmp_path / "ckpt")
    assert second().load(path).new == 2.5


def test_wrong_steps_are_found_when_the_old_document_is_known(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    new = define(
        "State",
        2,
        {"w": W, "new": float, "n": int},
        migrations=[steps.migration(1, [steps.rename(field="old", to="nu")])],
    )
    value(new, new=1.0, n=1).export(
        tmp_path / "alone"
    )  # nothing is known of version 1: nothing to prove
    with pytest.raises(s.MigrationError) as caught:
        new.load(path)
    assert {d.code for d in caught.value.diagnostics} == {"NQX305"}
    assert {d.path.rpartition(".")[2] for d in caught.value.diagnostics} == {
        "new",
        "nu",
        "n",
        "rank",
    }
    assert all(d.hint for d in caught.value.diagnostics)


def test_an_edited_version_is_refused(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    edited = define("State", 1, {"w": W, "old": int, "rank": int})
    with refused(s.MigrationError, "NQX405", "$.schema.fingerprint"):
        edited.load(path)
    assert s.load(path).old == 2.5  # as what wrote it


def test_another_schema_is_refused(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    other = define("State", 1, {"w": W, "old": float, "rank": int}, schema="lab.other")
    with refused(s.MigrationError, "NQX404", "lab.other", "lab.state"):
        other.load(path)


def test_a_version_from_the_future_without_steps_says_so(tmp_path):
    path = value(second(), new=2.5, label="x").export(tmp_path / "ckpt")
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["schemas"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    bundle.seal(path)
    forgotten()
    with refused(s.MigrationError, "NQX404", "lab.state", 1, 2) as caught:
        first().load(path)
    assert "newer release" in caught.value.diagnostics[0].hint


def test_a_class_that_gets_an_identity_reads_what_it_wrote_before(tmp_path):
    plain = types.new_class(
        "Later",
        (s.Struct,),
        {},
        lambda n: n.update(__annotations__={"n": int}, __module__=__name__),
    )
    path = plain(n=3).export(tmp_path / "ckpt")
    new = define("Later", 1, {"n": int, "m": int}, defaults={"m": 0})
    s.references.alias_class(f"{__name__}:Later", new)
    assert new.load(path) == new(n=3, m=0)


def test_cells_may_run_again(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    again = first()
    assert type(s.load(path)) is again and again.load(path).rank == 3


def test_a_class_that_was_superseded_still_loads_its_own(tmp_path):
    old = first()
    path = value(old, old=2.5, rank=3).export(tmp_path / "ckpt")
    first()
    assert type(old.load(path)) is old


# ---------------------------------------------------------------------------------------------------------------------
# Nesting and inheritance.


class Layer(s.Struct):
    w: W


class Mode(enum.Enum):
    FAST = 1
    EXACT = 2


def test_nested_structs_without_identity_are_part_of_the_document(tmp_path):
    old = define("Net", 1, {"layers": list[Layer], "head": Layer | None})
    path = old(layers=[Layer(w=jnp.ones(2)), Layer(w=jnp.ones(3))], head=None).export(
        tmp_path / "ckpt"
    )
    nodes = bundle.read_manifest(path)["manifest"]["fields"]["layers"]["items"]
    assert [node["type"] for node in nodes] == ["lab.state@1:Layer"] * 2
    assert s.load(path).layers[1] == Layer(w=jnp.ones(3))
    forgotten()
    later = types.new_class(
        "Layer", (s.Struct,), {}, lambda n: n.update(__annotations__={"kernel": W})
    )
    rename = [steps.migration(1, [steps.rename(field="w", to="kernel", within="Layer")])]
    new = define("Net", 2, {"layers": list[later], "head": later | None}, migrations=rename)
    assert new.load(path) == new(
        layers=[later(kernel=jnp.ones(2)), later(kernel=jnp.ones(3))], head=None
    )
    new.load(path).export(tmp_path / "new")
    schema = documents.series_of_class(new).merged([s.schema_of(old)])
    done = s.migrate(tmp_path / "new", tmp_path / "down", to="-1", schema=schema)
    assert done.plan.hops[0].direction == "downgrade"
    forgotten()
    assert s.load(tmp_path / "down").layers[1].w.shape == (3,)


def test_outside_of_the_root_a_plain_struct_keeps_its_own_name():
    net = define("Net", 1, {"layers": list[Layer]})
    node = s.to_state_dict({"a": net(layers=[Layer(w=jnp.ones(2))]), "b": Layer(w=jnp.ones(2))})[
        "manifest"
    ]
    assert node["items"][0][1]["fields"]["layers"]["items"][0]["type"] == "lab.state@1:Layer"
    assert node["items"][1][1]["type"] == f"{__name__}:Layer"


def test_nested_structs_with_an_identity_are_used(tmp_path):
    adam = define("Adam", 1, {"lr": float}, schema="lab.adam")
    old = define("State", 1, {"opt": adam, "all": list[adam]})
    assert s.schema_of(old).uses == ["lab.adam@1"]
    path = old(opt=adam(lr=0.1), all=[adam(lr=0.2)]).export(tmp_path / "ckpt")
    manifest = bundle.read_manifest(path)
    assert manifest["manifest"]["fields"]["opt"]["type"] == "lab.adam@1:Adam"
    assert [d["schema"] for d in manifest["schemas"]] == ["lab.state", "lab.adam"]
    assert s.validate(path) == [] and s.load(path).opt == adam(lr=0.1)
    forgotten()
    rate = [steps.migration(1, [steps.rename(field="lr", to="rate")])]
    newer = define("Adam", 2, {"rate": float}, schema="lab.adam", migrations=rate)
    new = define(
        "State", 2, {"opt": newer, "all": list[newer]}, migrations=[steps.migration(1, [])]
    )
    assert new.load(path) == new(opt=newer(rate=0.1), all=[newer(rate=0.2)])
    new.load(path).export(tmp_path / "new")
    forgotten()
    assert s.load(tmp_path / "new").all[0].rate == 0.2


def test_classes_that_use_each_other_are_refused():
    a = define("A", 1, {"b": "B | None"}, schema="lab.a")
    b = define("B", 1, {"a": a | None}, schema="lab.b")
    holder = types.new_class(
        "Holder", (s.Struct,), {"schema": "lab.h"}, lambda n: n.update(__annotations__={"b": b})
    )
    globals()["B"] = b
    try:
        with refused(s.SchemaError, "NQX135", "lab.h -> lab.b -> lab.a -> lab.b"):
            s.schema_of(holder)
    finally:
        del globals()["B"]


def test_a_class_may_hold_itself(tmp_path):
    tree = define("Tree", 1, {"n": int, "inner": "Tree | None"})
    value = tree(n=1, inner=tree(n=2, inner=None))
    assert s.schema_of(tree).structs["Tree"].fields["inner"].text == "Tree | null"
    assert tree.load(value.export(tmp_path / "ckpt")) == value


def test_two_versions_in_one_document_are_told():
    one, two = (
        define("A", 1, {"n": int}, schema="lab.a"),
        define("A", 2, {"m": int}, schema="lab.a"),
    )
    report = []
    document = s.schema_of(define("State", 1, {"one": one, "two": two}), report=report)
    assert [f.text for f in document.structs["State"].fields.values()] == ["lab.a.A", "pytree"]
    assert [d.path for d in report] == ["State.two"]


def test_members_of_enums_are_text_in_the_bundle(tmp_path):
    old = define("State", 1, {"mode": Mode, "maybe": Mode | None, "many": list[Mode]})
    value = old(mode=Mode.FAST, maybe=None, many=[Mode.EXACT])
    path = value.export(tmp_path / "ckpt")
    assert bundle.read_manifest(path)["manifest"]["fields"]["mode"] == "FAST"
    assert old.load(path) == value and s.load(path) == value and s.validate(path) == []
    migrations = [
        steps.migration(
            1,
            [
                steps.map_enum(enum="Mode", values={"FAST": "QUICK"}),
                steps.add(field="other", default="QUICK"),
                steps.add(field="sort", default="B"),
            ],
        )
    ]
    forgotten()
    mode = enum.Enum("Mode", ["QUICK", "EXACT"])
    sort = enum.Enum("Sort", ["A", "B"])
    globals()["Mode"], kept = mode, Mode
    mode.__module__ = __name__
    try:
        fields = {
            "mode": mode,
            "maybe": mode | None,
            "many": list[mode],
            "other": mode,
            "sort": sort,
        }
        new = define("State", 2, fields, migrations=migrations)
        loaded = new.load(path)
        assert loaded == new(
            mode=mode.QUICK, maybe=None, many=[mode.EXACT], other=mode.QUICK, sort=sort.B
        )
        assert (
            s.migrate(path, tmp_path / "new", schema=documents.series_of_class(new)).out is not None
        )
        assert new.load(tmp_path / "new") == loaded
    finally:
        globals()["Mode"] = kept


def test_a_subclass_that_adds_no_field_is_saved_as_the_version_it_is(tmp_path):
    base = first()
    own = types.new_class(
        "Own", (base,), {}, lambda n: n.update(twice=lambda self: 2 * self.old, __module__=__name__)
    )
    path = value(own, old=1.0, rank=1).export(tmp_path / "ckpt")
    assert bundle.read_manifest(path)["manifest"]["type"] == "lab.state@1:State"
    assert type(s.load(path)) is base and own.load(path).twice() == 2.0
    forgotten()
    new = types.new_class(
        "Own", (second(),), {}, lambda n: n.update(twice=lambda self: 2 * self.new)
    )
    assert new.load(path).twice() == 2.0


def test_subclasses_with_more_fields_do_not_inherit_the_identity(tmp_path):
    base = first()
    own = types.new_class(
        "Own", (base,), {}, lambda n: n.update(__annotations__={"more": int}, __module__=__name__)
    )
    s.references.register_ref(own)
    path = value(own, old=1.0, rank=1, more=2).export(tmp_path / "ckpt")
    manifest = bundle.read_manifest(path)
    assert "schema" not in manifest and manifest["manifest"]["type"] == f"{__name__}:Own"
    assert base.load(path) == own.load(path) == value(own, old=1.0, rank=1, more=2)
    third = types.new_class(
        "State",
        (base,),
        {"schema": "lab.more", "version": 4},
        lambda n: n.update(__module__=__name__),
    )
    assert s.schema_of(third).version == 4 and list(s.schema_of(third).structs["State"].fields) == [
        "w",
        "old",
        "rank",
    ]


def test_abstract_and_schema_built_bases(tmp_path):
    abstract = StructABCMeta(
        "Abstract",
        (s.Struct,),
        {"__annotations__": {"n": int}, "__module__": __name__},
        schema="lab.x",
    )
    assert s.schema_of(abstract).id == "lab.x"
    made = s.load_schema("schemas/vmc_state").Sampler
    own = types.new_class(
        "Own", (made,), {"schema": "lab.own"}, lambda n: n.update(__module__=__name__)
    )
    assert s.schema_of(own).id == "lab.own"
    sub = types.new_class("Sub", (own,), {}, lambda n: n.update(__module__=__name__))
    assert documents.series_of_class(sub).id == "lab.own"
    assert documents.series_of_class(made).id == "neuralqx.vmc_state"


def test_instances_and_classes_pickle():
    global Kept

    class Kept(s.Struct, schema="lab.kept", version=3):
        n: int = 0

    Kept.__qualname__ = "Kept"
    assert (
        pickle.loads(pickle.dumps(Kept(n=2))) == Kept(n=2)
        and pickle.loads(pickle.dumps(Kept)) is Kept
    )


def test_python_steps_given_as_functions_are_the_readers_own(tmp_path):
    path = value(first(), old=2.5, rank=3).export(tmp_path / "ckpt")
    forgotten()
    step = steps.python(function=doubled, reads=["old"], writes=["old"], lossy=True)
    new = define(
        "State", 2, {"w": W, "old": float, "rank": int}, migrations=[steps.migration(1, [step])]
    )
    assert new.load(path).old == 5.0
    assert new.load(path).export(tmp_path / "new") and s.schema_of(new).migrations[0].steps[
        0
    ].step.function == (f"{__name__}.doubled")


def doubled(values):
    return {"old": 2 * values["old"]}


# ---------------------------------------------------------------------------------------------------------------------
# Wrong keywords.

MIGRATION = steps.migration(1, [])


@every(
    ("keywords", "named"),
    [
        ({"version": 2}, ["A", "schema=", "version="]),
        ({"migrations": []}, ["A", "schema=", "migrations="]),
        ({"schema": 3}, ["A", "schema=", 3]),
        ({"schema": "lab-a"}, ["A", "schema=", "'lab-a'"]),
        ({"schema": ""}, ["A", "schema=", "''"]),
        ({"schema": "lab.a\n"}, ["A", "schema=", r"'lab.a\n'"]),
        ({"schema": "lab.a", "version": 0}, ["A", "version=", 0]),
        ({"schema": "lab.a", "version": True}, ["A", "version=", True]),
        ({"schema": "lab.a", "version": "2"}, ["A", "version=", "'2'"]),
        (
            {"schema": "lab.a", "version": 2, "migrations": MIGRATION},
            ["A", "migrations=", "Migration"],
        ),
        ({"schema": "lab.a", "version": 2, "migrations": "x"}, ["A", "migrations=", "'x'"]),
        ({"schema": "lab.a", "version": 2, "migrations": 1}, ["A", "migrations=", 1]),
        (
            {"schema": "lab.a", "version": 2, "migrations": [steps.rename(field="a", to="b")]},
            ["A", "migrations=", "Rename"],
        ),
        ({"schema": "lab.a", "version": 1, "migrations": [MIGRATION]}, ["A", "migrations=", 1]),
        (
            {"schema": "lab.a", "version": 2, "migrations": [MIGRATION] * 2},
            ["A", "migrations=", "1, 1"],
        ),
        ({"schema": "lab.a", "version": 3, "migrations": [MIGRATION]}, ["A", "migrations=", 2, 1]),
        ({"shema": "lab.a"}, ["A", "'shema'", "'schema'"]),
        ({"frozen": True}, ["A", "'frozen'"]),
    ],
)
def test_wrong_keywords_are_told_where_the_class_is_defined(keywords, named):
    with refused(TypeError, *named):
        types.new_class("A", (s.Struct,), keywords, lambda n: n.update(__annotations__={"n": int}))
    assert references._BOUND == {}


@pytest.mark.parametrize(
    ("version", "given", "got"),
    [
        ("1", [], "'1'"),
        (True, [], True),
        (0, [], 0),
        (1, ["rename"], "'rename'"),
        (1, "rename", "'rename'"),
        (1, steps.rename(field="a", to="b"), "Rename"),
        (1, [MIGRATION], "Migration"),
    ],
)
def test_wrong_migrations_are_told_where_they_are_written(version, given, got):
    with refused(TypeError, "steps.migration()", got):
        steps.migration(version, given)


def test_names_that_no_schema_can_write_are_told_where_the_class_is_defined():
    with refused(TypeError, "'Zustä'"):
        types.new_class("Zustä", (s.Struct,), {"schema": "lab.a"})


def test_plain_classes_claim_nothing():
    assert documents.bound_document(Layer) is None and documents.series_of_class(Layer) is None
    assert documents.document_of(Layer) is None and documents.series_of_class(int) is None
    assert list(documents.bound_documents("lab.state@x:State")) == []


def test_what_a_plain_struct_holds_is_brought_to_the_version_that_its_fields_name(tmp_path):
    adam = define("Adam", 1, {"lr": float}, schema="lab.adam")
    inner = type(s.Struct)(
        "Inner", (s.Struct,), {"__annotations__": {"one": adam | None}, "__module__": __name__}
    )
    fields = {"a": adam, "all": list[adam], "inner": inner}
    outer = type(s.Struct)(
        "Outer", (s.Struct,), {"__annotations__": fields, "__module__": __name__}
    )
    path = outer(a=adam(lr=0.1), all=[adam(lr=0.2)], inner=inner(one=adam(lr=0.3))).export(
        tmp_path / "ckpt"
    )
    rate = [
        steps.migration(
            1, [steps.rename(field="lr", to="rate"), steps.add(field="more", default=1)]
        )
    ]
    newer = define("Adam", 2, {"rate": float, "more": int}, schema="lab.adam", migrations=rate)
    inner = type(s.Struct)(
        "Inner", (s.Struct,), {"__annotations__": {"one": newer | None}, "__module__": __name__}
    )
    fields = {"a": newer, "all": list[newer], "inner": inner}
    new = type(s.Struct)("Outer", (s.Struct,), {"__annotations__": fields, "__module__": __name__})
    report = []
    loaded = new.load(path, report=report)
    one, two, three = (newer(rate=r, more=1) for r in (0.1, 0.2, 0.3))
    assert loaded == new(a=one, all=[two], inner=inner(one=three))
    assert len(report) == 3
    # A class whose fields name two versions of one schema means each of them: nothing is guessed.
    fields = {"a": adam, "all": list[newer], "inner": inner}
    both = type(s.Struct)("Outer", (s.Struct,), {"__annotations__": fields, "__module__": __name__})
    assert both.load(path).a == adam(lr=0.1)


def test_bases_may_take_keywords_of_their_own():
    class Base(s.Struct):
        def __init_subclass__(cls, *, tag: str = "none", **more):
            super().__init_subclass__(**more)
            cls.tag = tag

    class Derived(Base, tag="mine"):
        x: int

    assert Derived.tag == "mine"
    with pytest.raises(TypeError, match="Other.__init_subclass__"):

        class Other(Base, tagg="mine"):
            pass
