"""Content-based matching: the filter language, its algebra, indexes of filters, and z-codes.

values         exact sets of values of one attribute
conjunctions   such sets for several attributes, and bindings between attributes
syntax         the parser: text to tree, with errors that show the position
normal_form    tree to disjunctive normal form, within a budget
printer        the canonical text of a normal form
filters        `Filter` and `parse`, the interface for the rest of Wend
algebra        covers and intersects
merge          one filter in place of several
reduction      the filters that no other filter covers, for very many
index          the index of a peer: the filters that match an event
peer_bitmaps   the same for many filters, in plain Python
peer_blocks    its rows of bits
box_grids      the same for very many narrow boxes, in plain Python
boxes          conjunctions in little memory, for indexes
bitmap_index   the compiled index, for very many filters and for batches of events
batch          events as columns
buckets        the values of one attribute, as a few rows of a bitmap table
batch_buckets  the same for columns of values
bitmap_table   the bitmap table: for each row, the filters that it refuses
kernels        the compiled loops over these bits
zcode          regions of an attribute space as bit strings
"""
