# Short names for common commands. ARGS goes to the command: make bench ARGS=--json
ready = root='$(CURDIR)'; . scripts/setup.sh; prepare dev,maps,pictures,plan,sim,spark; need_java

.PHONY: check bench studies docs

check:
	@./test $(ARGS)

bench:
	@$(ready); .venv/bin/python -m benchmarks.run $(ARGS)

studies:
	@$(ready); .venv/bin/wend study dcrd $(ARGS)

docs:
	@$(ready); .venv/bin/pytest tests/docs $(ARGS)
