"""An agent of the Python SDK's low-level session: opens with `initialize`.

    python session.py PLAN.json      PLAN: {command, args, env, calls: [{tool, arguments}]}

Prints one JSON line per answer.
"""

import json
import os
import sys

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        plan = json.load(file)
    server = StdioServerParameters(
        command=plan["command"], args=plan["args"], env={**os.environ, **plan["env"]}
    )
    async with stdio_client(server) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        await session.list_tools()
        for call in plan["calls"]:
            try:
                answer = (await session.call_tool(call["tool"], call["arguments"])).model_dump_json(exclude_none=True)
            except Exception as error:
                answer = json.dumps({"error": str(error)})
            print(answer, flush=True)


anyio.run(main)
