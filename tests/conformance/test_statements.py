"""How named parameters become the places of a driver."""

import pytest

from perdure.store.statements import compiled


def test_parameters_are_numbered_in_the_order_of_their_first_use() -> None:
    statement = compiled(
        "one", "select * from jobs where id = :job_id and (:kind::text is null or kind = :kind) limit :most"
    )
    assert statement.sql == "select * from jobs where id = $1 and ($2::text is null or kind = $2) limit $3"
    assert statement.parameters == ("job_id", "kind", "most")
    assert statement.values({"most": 3, "kind": None, "job_id": 1}) == [1, None, 3]


@pytest.mark.parametrize(
    "text",
    [
        "select now()::text",
        "select 'at :time, it''s :late', E'\\':quoted'",
        'select "odd :name" from t',
        "select 1 -- :comment",
        "select 1 /* :comment\n:more */",
        "do $$ begin x := :y; end $$",
        "do $body$ select '$$', :y $body$",
        "select a[1:2]",
    ],
)
def test_what_only_looks_like_a_parameter_is_left_alone(text: str) -> None:
    assert compiled("one", text).sql == text
    assert compiled("one", text).parameters == ()


def test_a_driver_may_have_its_own_markers() -> None:
    statement = compiled("one", "select :jobs::json, :jobs", lambda _, name: f"%({name})s")
    assert statement.sql == "select %(jobs)s::json, %(jobs)s"


@pytest.mark.parametrize(
    "given", [{}, {"job_id": 1, "version": 2, "kind": "x"}, {"job_id": 1, "kind": "x"}, {"job_id": 1}]
)
def test_a_missing_or_unknown_value_is_refused(given: dict[str, object]) -> None:
    statement = compiled("one", "select :job_id, :version")
    with pytest.raises(TypeError, match="statement 'one' takes"):
        statement.values(given)
