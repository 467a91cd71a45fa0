"""The nouns of Wend: time, ids, events, subscriptions, scenarios, traces. Imports nothing else of ours."""
