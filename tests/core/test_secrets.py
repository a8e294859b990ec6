"""Parameters of type secret: declared and given by where they are, and only a name in the core."""

import pytest

from leadhand.core.catalog import Catalog, Offer, WorkerSpec
from leadhand.core.lint.plan import lint
from leadhand.core.plan import references
from leadhand.core.plan.parameters import bind_params, bind_texts, with_secrets
from leadhand.core.plan.references import Secret, SecretText

TEXT = {"type": "object", "properties": {"t": {"type": "string"}}, "required": ["t"]}
CATALOG = Catalog(
    [
        WorkerSpec(name=kind, kind=kind, offers={"": Offer(parameters=TEXT)})
        for kind in ("function", "command", "human", "caller")
    ]
)


def plan(value="${{ params.token }}", declared=None, worker="function", **more):
    return {
        "goal": "g",
        "params": {"token": declared or {"type": "secret", "env": "API_TOKEN"}},
        "steps": [{"id": "a", "worker": worker, "parameters": {"t": value}, **more}],
    }


def rules(doc, **more):
    return [each.rule for each in lint(doc, CATALOG, advice=False, **more)]


def test_a_secret_fits_where_a_text_is_wanted():
    assert rules(plan()) == []
    assert rules(plan(), params={}) == []
    assert rules(plan("Bearer ${{ params.token }}"), params={"token": "env:OTHER"}) == []
    number = Catalog(
        [
            WorkerSpec(
                name="function",
                offers={
                    "": Offer(
                        parameters={"type": "object", "properties": {"t": {"type": "integer"}}}
                    )
                },
            )
        ]
    )
    assert [each.rule for each in lint(plan(), number, params={}, advice=False)] == [
        "parameter-wrong"
    ]


@pytest.mark.parametrize(
    "declared",
    [
        {"type": "secret", "default": "hunter2"},
        {"type": "secret", "enum": ["a"]},
        {"type": "secret", "env": "not a name"},
        {"type": "secret", "env": 7},
        {"type": "secret", "env": "A", "keyring": "s/u"},
        {"type": "secret", "keyring": "no-user"},
        {"type": "secret", "required": "yes"},
    ],
)
def test_what_a_secret_cannot_be_declared_as(declared):
    found = lint(plan(declared=declared), CATALOG, advice=False)
    assert [each.rule for each in found] == ["param-wrong"]
    assert "hunter2" not in str(found[0])


def test_a_secret_is_bound_to_where_it_is():
    declared = plan()["params"]
    assert bind_params(declared, {}) == ({"token": "env:API_TOKEN"}, [])
    assert bind_texts(declared, {"token": "keyring:shop/me"})[0] == {"token": "keyring:shop/me"}
    assert bind_params({"token": {"type": "secret", "required": False}}, {}) == (
        {"token": None},
        [],
    )


@pytest.mark.parametrize("given", ["hunter2-the-value", 482913, ["hunter2"], {"a": "hunter2"}, ""])
def test_a_value_is_refused_and_not_shown(given):
    values, found = bind_params({"token": {"type": "secret"}}, {"token": given})
    assert values == {}
    assert [each.rule for each in found] == ["param-wrong"]
    assert "hunter2" not in str(found)
    assert "482913" not in str(found)
    assert "env:NAME" in found[0].message


def test_one_that_is_nowhere_is_missing():
    _, found = bind_params({"token": {"type": "secret"}}, {})
    assert found[0].rule == "param-missing"
    assert "--set token=env:VARIABLE" in found[0].fix


def test_where_a_secret_cannot_stand():
    assert rules(plan("${{ params.token.part }}")) == ["reference-unresolved"]
    assert rules(plan(worker="human")) == ["secret-misplaced"]
    assert rules(plan(worker="caller")) == ["secret-misplaced"]
    assert rules(plan(worker="command")) == ["secret-exposed"]
    misplaced = plan(success_criteria="data == '${{ params.token }}'")
    assert "reference-misplaced" in rules(misplaced)
    assert "reference-misplaced" in rules({**plan(), "goal": "${{ params.token }}"})


def test_references_become_placeholders():
    params = with_secrets(plan(), {"token": "env:API_TOKEN", "plain": "env:API_TOKEN"})
    secret = Secret("token", "env:API_TOKEN")
    assert params == {"token": secret, "plain": "env:API_TOKEN"}
    value = {"a": "${{ params.token }}", "b": ["x ${{ params.token }} ${{ params.plain }}"]}
    found = references.resolve(value, lambda ref: params[ref.name])
    assert found == {"a": secret, "b": [SecretText(("x ", secret, " ", "env:API_TOKEN"))]}
    shown = references.load_apart(found, lambda _: None, lambda each: f"<{each.name}>")
    assert shown == {"a": "<token>", "b": ["x <token> env:API_TOKEN"]}
    with pytest.raises(references.Unresolved, match="a secret has no parts"):
        references.resolve("${{ params.token[0] }}", lambda ref: params[ref.name])


def test_data_that_looks_like_a_secret_is_data():
    """Only what the plan declares is one: no value given from outside can ask for a variable."""
    declared = {"a": {"type": "object"}, "b": "env:HOME"}
    params = {"a": {"$secret": "token", "source": "env:HOME"}, "b": "env:HOME"}
    assert with_secrets({"params": declared}, params) == params
