"""Responses kept for GET and previous_response_id: in memory, bounded, the oldest go first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from server.errors import ApiError


class Store:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept: OrderedDict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = OrderedDict()

    def put(self, response: dict[str, Any], items: list[dict[str, Any]]) -> None:
        self._kept[response["id"]] = (response, items)
        while len(self._kept) > self._limit:
            self._kept.popitem(last=False)

    def get(self, response_id: str) -> dict[str, Any]:
        return self._find(response_id)[0]

    def conversation(self, response_id: str) -> list[dict[str, Any]]:
        """All items up to and with that response's output."""
        response, items = self._find(response_id)
        return [*items, *response["output"]]

    def item(self, item_id: str, param: str) -> dict[str, Any]:
        """An item of the output or the input of any response that is kept, the newest first."""
        for response, items in reversed(self._kept.values()):
            for item in (*response["output"], *items):
                if item.get("id") == item_id:
                    return item
        raise ApiError(
            f"{param}: there is no item '{item_id}' here; its response was not stored, or is gone.",
            "not_found",
            param=param,
            code="item_not_found",
        )

    def drop(self, response_id: str) -> None:
        self._find(response_id)
        del self._kept[response_id]

    def _find(self, response_id: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        found = self._kept.get(response_id)
        if found is None:
            raise ApiError(
                f"There is no response '{response_id}' here; it was not stored, or is gone.",
                "not_found",
                param="previous_response_id",
                code="response_not_found",
            )
        return found
