"""OpenAI's own client in front of a node: it sends again by itself what has surely not run, and
nothing that may have."""

import pytest

from support.proxy_doors import in_front


async def hang(talk, *_):
    await talk.until_closed()


async def hang_up(talk, *_):
    talk.reset()


@pytest.mark.parametrize(("answer", "status"), [(hang, 504), (hang_up, 502)])
async def test_a_job_that_may_have_run_is_run_once(answer, status):
    """By default the client tries three times."""
    import openai  # here, since it takes as long as all else that a worker reads of `apps`

    async with in_front(default_deadline_ms=300) as here:
        here.service.answer = answer
        url = f"http://127.0.0.1:{here.ports['a']}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key="k") as client:
            asked = [{"role": "user", "content": "hello"}]
            with pytest.raises(openai.APIStatusError) as error:
                await client.chat.completions.create(model="m", messages=asked)
        assert error.value.status_code == status
        assert error.value.body["reason"] in ("deadline_exceeded", "handler_failed")
        assert len(here.service.seen) == 1
