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
index          which of many filters match, as peers ask it
bitmaps        the same for very many filters, and for batches of events
batch          events as columns
buckets        one attribute's values as a few rows
table          for each row, the filters that it refuses, as bits
kernels        the compiled loops over these bits
zcode          regions of an attribute space as bit strings
"""
