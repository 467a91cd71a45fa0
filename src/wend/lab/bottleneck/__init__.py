"""`wend lab bottleneck`: live peers across one slow link, alone and beside other traffic."""
