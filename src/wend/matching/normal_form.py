"""Disjunctive normal form: a tree of `and` and `or` to a disjunction of conjunctions, within a budget.

The size can double with every `or`. So the steps are counted, and a filter that needs too many is refused with an error
that states its size. Contradictions are dropped at once, which keeps some large filters small: each interval that a
filter excludes from one attribute adds only one conjunction.
"""

import math
from typing import NoReturn

from wend.matching.conjunctions import Binding, Conjunction, conjoin, conjoin_all
from wend.matching.printer import conjunction_text
from wend.matching.syntax import MAX_PREDICATES, Leaf, Tree
from wend.model.errors import FilterError

MAX_CONJUNCTIONS = 128
MAX_STEPS = 8192
PRUNE_STEPS = 16_384

TRUE = Conjunction(())


def normal_form(tree: Tree) -> tuple[Conjunction, ...]:
    """The conjunctions of a tree, sorted by their texts. Those that another one covers are left out if testing all
    pairs is cheap enough."""
    budget = Budget(tree)
    distinct = list(dict.fromkeys(_expand(tree, budget)))
    weight = sum(c.weight for c in distinct)
    # Half of the budget: parsing the printed form costs a little more than its weight.
    if len(distinct) > MAX_CONJUNCTIONS or weight > MAX_STEPS // 2:
        budget.refuse()
    if len(distinct) < 2:
        return tuple(distinct)
    # A test costs at most the weight of one conjunction, so this bounds the cost of all pairs. The condition depends on
    # the result alone, and a pruned result stays below the bound: printing and parsing it again changes nothing.
    if weight * len(distinct) <= PRUNE_STEPS:
        distinct = [c for at, c in enumerate(distinct) if not _is_covered(c, at, distinct)]
    return tuple(sorted(distinct, key=conjunction_text))


def _is_covered(one: Conjunction, at: int, among: list[Conjunction]) -> bool:
    for other_at, other in enumerate(among):
        # Of two that cover each other the first stays.
        if other_at != at and other.covers(one) and (other_at < at or not one.covers(other)):
            return True
    return False


class Budget:
    """Counts the steps of a normalisation, and refuses the filter if they are too many."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.steps = 0

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            self.refuse()

    def refuse(self) -> NoReturn:
        size = conjunction_count(self.tree)
        shown = str(size) if size < 10**9 else f"about 10^{round(math.log10(size))}"
        raise FilterError(
            f"the filter is too large: without parentheses it would be {shown} conjunctions joined by `or`; "
            f"{MAX_CONJUNCTIONS} are allowed, with {MAX_PREDICATES} predicates and {MAX_STEPS // 2} values in all",
            code="filter-too-large",
        )


def conjunction_count(tree: Tree) -> int:
    """The number of conjunctions in the normal form, before any is dropped."""
    if isinstance(tree, Leaf):
        return len(tree.alternatives)
    if isinstance(tree, Binding):
        return 1
    counts = [conjunction_count(child) for child in tree.children]
    return math.prod(counts) if tree.all else sum(counts)


def _expand(tree: Tree, budget: Budget) -> list[Conjunction]:
    if isinstance(tree, Leaf):
        return [Conjunction(((tree.name, values),)) for values in tree.alternatives]
    if isinstance(tree, Binding):
        return [Conjunction((), (tree,))]
    children = [_expand(child, budget) for child in tree.children]
    if not tree.all:
        return [one for child in children for one in child]
    return _multiply(children, budget)


def _multiply(children: list[list[Conjunction]], budget: Budget) -> list[Conjunction]:
    # Join children with a single conjunction first: that cost is linear, and they may contradict each other.
    if not all(children):
        return []
    single = [child[0] for child in children if len(child) == 1]
    budget.spend(sum(c.weight for c in single))
    first = conjoin((s for c in single for s in c.values), (b for c in single for b in c.bindings))
    products = [] if first is None else [first]
    for child in children:
        if len(child) > 1 and products:
            weights = sum(c.weight for c in products) * len(child) + sum(c.weight for c in child) * len(products)
            budget.spend(weights)
            products = list(dict.fromkeys(conjoin_all(products, child)))
    return products
