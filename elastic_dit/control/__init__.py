"""The deciding core: a pure state machine and its policies."""
