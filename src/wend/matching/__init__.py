"""Content-based matching: the filter language, relations between filters, indexes of filters, and z-codes.

The language
    values           exact sets of values of one attribute
    conjunctions     such sets for several attributes, and bindings between attributes
    syntax           the parser: text to tree, with errors that show the position
    normal_form      tree to disjunctive normal form, within a budget
    printer          the canonical text of a normal form
    filters          `Filter` and `parse`, the interface for the rest of Wend
    filter_warnings  filters that are probably not what their author means
Several filters
    covering         the filters that no other one covers, of a fixed or a changing set
    merge            one filter in place of several
The index of a peer: the filters that match one event, in plain Python
    index            `Index`: filters come and go
    peer_bitmaps     the part for many filters
    peer_blocks      its rows of bits
    peer_grids       the same for very many narrow boxes
    boxes            conjunctions in little memory
    borders          the borders between rows, for both indexes
The compiled index of a Spark job: the filters that match each event of a batch, with NumPy and numba
    batch            `Batch`: events as columns
    batch_index      `BatchIndex`: compiled once
    batch_table      the bits: for each row, the filters that it refuses
    batch_buckets    the values of one attribute, as a few rows
    batch_kernels    the compiled loops
Values as strings of bits
    zcode            regions of an attribute space
    order_cells      values in their order, without a declared domain
"""
