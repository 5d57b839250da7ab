"""What a run did, as data, as a contact sheet and as a timeline."""

from __future__ import annotations
