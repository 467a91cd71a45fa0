"""How nodes of several trees choose parents whose underlay paths share few routers."""
