# Short names for common commands. ARGS goes to the command: make bench ARGS=--json
ready = root='$(CURDIR)'; . scripts/setup.sh; prepare dev,maps,pictures,plan,sim,spark; need_java

.PHONY: check bench studies docs compiled check-compiled

check:
	@./test $(ARGS)

bench:
	@$(ready); .venv/bin/python -m benchmarks.run $(ARGS)

studies:
	@$(ready); .venv/bin/wend study dcrd $(ARGS)

docs:
	@$(ready); .venv/bin/pytest tests/docs $(ARGS)

# The package with a compiled core, in build/compiled and as a wheel in dist/. It needs a C compiler.
compiled:
	@$(ready); .venv/bin/python scripts/compiled.py --wheel

# All tests, on that package.
check-compiled:
	@$(ready); .venv/bin/python scripts/compiled.py; PYTHONPATH='$(CURDIR)/build/compiled' .venv/bin/pytest -n 2 $(ARGS)
