"""The session list: whole as the original gives it, or a page of it."""

from __future__ import annotations

import pytest

from tests.flows.kit import open_api


async def test_pages_add_up_to_the_whole_list_newest_first(tmp_path):
    async with open_api(tmp_path) as api:
        for number in range(5):
            await api.create(title=f"s{number}")
        whole = (await api.get("/api/sessions")).json
        pages = [(await api.get(f"/api/sessions?limit=2&offset={offset}")).json for offset in (0, 2, 4, 6)]
        rest = (await api.get("/api/sessions?offset=3")).json
    assert [row["title"] for row in whole] == ["s4", "s3", "s2", "s1", "s0"]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [row for page in pages for row in page] == whole
    assert rest == whole[3:]


@pytest.mark.parametrize("query", ["limit=-1", "limit=x", "offset=-1", "limit=10001"])
async def test_a_page_that_makes_no_sense_is_refused(tmp_path, query):
    async with open_api(tmp_path) as api:
        assert (await api.get(f"/api/sessions?{query}")).status == 400
