"""Which subscription wants which event: the filter language, its algebra, the index and z-codes.

values         the values that one attribute may have, as an exact set
conjunctions   such sets for several attributes, and attributes bound to each other
syntax         text to tree, with an error that shows the place
normal         tree to a bounded disjunction of conjunctions
printer        the one text of a normal form
filters        `Filter` and `parse`: what the rest of Wend uses
algebra        covers and intersects
merge          one filter for two
reduction      the filters that no other one covers, for very many
index          which of many filters match
zcode          regions of an attribute space as bit strings
"""
