"""Makes docs/picture.svg: the app with the embedded model, as it answers on this machine.

python docs/picture.py [--model NAME] [--drafter NAME] [prompt ...]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

PROMPTS = (
    "Write a short Python function that adds two numbers, in a code block.",
    "Repeat the function and rename it to plus.",
)


async def picture(model: str, drafter: str, prompts: list[str]) -> None:
    from engine.config import Config
    from tui.app import ChatApp
    from tui.options import Options

    app = ChatApp(Options(Config(model=model, drafter=drafter, max_tokens=160)))
    async with app.run_test(size=(120, 36)) as pilot:
        while app.session.engine is None:
            if app.main.loader.manager.error:
                raise SystemExit(app.main.loader.manager.error)
            await pilot.pause(0.2)
        for prompt in prompts:
            app.main.submit(prompt)
            while app.session.busy:
                await pilot.pause(0.2)
        await pilot.pause(1.0)
        app.save_screenshot(str(ROOT / "docs" / "picture.svg"))
        engine = app.session.engine
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("prompts", nargs="*", default=PROMPTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        if "DSPARK_HOME" not in os.environ and args.model:
            os.environ["DSPARK_HOME"] = home
        asyncio.run(picture(args.model, args.drafter, list(args.prompts)))


if __name__ == "__main__":
    main()
