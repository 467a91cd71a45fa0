"""Filter texts of every form, and events with values near those of the filters."""

from hypothesis import strategies as st

from wend.matching.printer import name_text, value_text
from wend.model.events import Range

names = st.sampled_from(["a", "b", "c", "x.y-z", "in", "nan", "two words", "ä`\\", "_"])
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, -(2**60), 10**30, 10**399, 0.1, -0.0, 1e300, 5e-324, 1 + 2**-52]),
    st.floats(allow_nan=False, allow_infinity=False, width=64),
)
texts = st.one_of(st.sampled_from(["", "a", "ab", "b", "a\0", "it's", "\U0010ffff", "\ud7ff"]), st.text(max_size=4))
kinds = [st.booleans(), numbers, texts]
scalars = st.one_of(*kinds)
signs = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])


@st.composite
def predicates(draw: st.DrawFn) -> str:
    name = name_text(draw(names))
    form = draw(st.integers(0, 6))
    if form <= 1:
        return f"{name} {draw(signs)} {value_text(draw(scalars))}"
    if form == 2:
        low, high = sorted(draw(st.one_of(*(st.tuples(kind, kind) for kind in kinds))))
        return (
            f"{name} in {draw(st.sampled_from('[]'))}{value_text(low)}, {value_text(high)}{draw(st.sampled_from('[]'))}"
        )
    if form == 3:
        found = draw(st.one_of(*(st.lists(kind, min_size=1, max_size=5) for kind in kinds)))
        return f"{name} in {{{', '.join(map(value_text, found))}}}"
    if form == 4:
        return f"{name} prefix {value_text(draw(texts))}"
    if form == 5:
        return f"{name} {draw(st.sampled_from(['exists', 'absent']))}"
    other = draw(names.filter(lambda n: name_text(n) != name))
    factor = draw(st.one_of(st.just(""), numbers.map(lambda n: f"{value_text(n)} * ")))
    return f"{name} {draw(signs)} {factor}{name_text(other)}"


filters = st.recursive(
    st.one_of(predicates(), st.sampled_from(["true", "false"])),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " and ".join(parts) + ")"),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: "(" + " or ".join(parts) + ")"),
        inner.map(lambda part: f"not ({part})"),
    ),
    max_leaves=8,
)


@st.composite
def ranges(draw: st.DrawFn) -> Range:
    low, high = sorted(draw(st.one_of(st.tuples(numbers, numbers), st.tuples(texts, texts))))
    open_ends = low < high
    return Range(low, high, open_ends and draw(st.booleans()), open_ends and draw(st.booleans()))


events = st.dictionaries(names, scalars, max_size=4)
range_events = st.dictionaries(names, st.one_of(scalars, ranges()), max_size=4)
