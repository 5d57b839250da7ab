"""The papers' experiments, on the controller that runs in production; theirs beside ours."""
