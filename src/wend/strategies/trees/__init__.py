"""Events on k trees that peers build by messages."""
