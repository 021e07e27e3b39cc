"""Writes goldens.json: conversations, and the prompts that Jinja2 makes of them with each template of templates/.

Run as `python3 goldens.py` with the jinja2 package installed (3.1.6 made the file that is checked in). The environment is
that of ../jinja/testdata/cases.py. Variables are as Template.render passes them: tools only where there are some.
"""

import itertools
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "jinja" / "testdata"))
import cases  # noqa: E402

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Wetter & more <b>for</b> a place: \"München\"",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "default": 2.5}},
                "required": ["place"],
                "additionalProperties": False,
            },
        },
    },
    {"type": "function", "function": {"name": "now", "parameters": {}}, "strict": None},
]


def call(name, arguments, **more):
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


SYSTEM = {"role": "system", "content": "You are terse.\n\nAnswer in English. "}
ASK = {"role": "user", "content": " What's the weather in München? "}
CALLING = {
    "role": "assistant",
    "content": "Let me look.",
    "reasoning_content": "A tool knows.\n",
    "tool_calls": [
        call("get_weather", {"place": "München", "days": 3, "deep": {"z": [1, None, True, 0.5], "a": "<é>"}, "on": False}, id="call_1"),
        call("now", {}),
    ],
}
RESULTS = [
    {"role": "tool", "content": "rain, 7°", "tool_call_id": "call_1"},
    {"role": "tool", "content": "12:00"},
]
DONE = {"role": "assistant", "content": "Rain.", "reasoning_content": "It rains."}
INLINE = {"role": "assistant", "content": "<think>\nhidden\n</think>\n\nshown"}
NEXT = {"role": "user", "content": "And tomorrow? <|image_pad|>"}
IMAGES = {
    "role": "user",
    "content": [
        {"type": "text", "text": "Compare "},
        {"type": "image_url", "image_url": {"url": "data:,1"}},
        {"type": "text", "text": " and "},
        {"type": "image_url", "image_url": {"url": "data:,2"}},
    ],
}
CONVERSATIONS = {
    "question": [ASK],
    "system": [SYSTEM, ASK],
    "answered": [SYSTEM, ASK, DONE, NEXT],
    "inline reasoning": [ASK, INLINE, NEXT],
    "ends with an answer": [ASK, DONE],
    "calls": [SYSTEM, ASK, CALLING, *RESULTS],
    "calls and more": [SYSTEM, ASK, CALLING, *RESULTS, DONE, NEXT],
    "a call alone": [ASK, {"role": "assistant", "content": "", "tool_calls": [call("now", {})]}, RESULTS[1], NEXT],
    "images": [SYSTEM, IMAGES, DONE, NEXT],
}
VARIABLES = [
    {},
    {"enable_thinking": False, "reasoning_effort": "none"},
    {"enable_thinking": True, "reasoning_effort": "low"},
    {"preserve_thinking": True},
]


def main():
    out = []
    for path in sorted((HERE / "templates").glob("*.jinja")):
        template = cases.environment().from_string(path.read_text())
        for (name, messages), tools, variables, prompt in itertools.product(
            CONVERSATIONS.items(), (None, TOOLS), VARIABLES, (True, False)
        ):
            if not prompt and variables:
                continue
            context = {"messages": messages, "add_generation_prompt": prompt, **variables}
            if tools:
                context["tools"] = tools
            out.append(
                {
                    "template": path.name,
                    "conversation": name,
                    "tools": bool(tools),
                    "add_generation_prompt": prompt,
                    "variables": variables,
                    "want": template.render(**context),
                }
            )
    data = {"made_with": "jinja2 " + cases.jinja2.__version__, "tools": TOOLS, "conversations": CONVERSATIONS, "goldens": out}
    (HERE / "goldens.json").write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n")
    print(len(out))


if __name__ == "__main__":
    main()
