"""The HTTP API: OpenAI's shapes over a cluster. ``elastic-dit serve`` runs it."""
