"""Writes cases.json: small templates, and what Jinja2 makes of them.

Run as `python3 cases.py` with the jinja2 package installed (3.1.6 made the file that is checked in). The environment is
the one that Transformers renders chat templates in: an immutable sandbox with trim_blocks and lstrip_blocks, loop
controls, a generation block, its own tojson, raise_exception and strftime_now.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

VARS = {
    "s": "Hello World",
    "u": "  naïve – 日本語 \U0001f600\u00a0",
    "empty": "",
    "n": 7,
    "neg": -7,
    "f": 2.5,
    "t": True,
    "no": False,
    "nil": None,
    "list": [3, 1, 2],
    "words": ["b", "A", "c", "a"],
    "d": {"z": 1, "a": {"b": [1, 2, {"c": None}]}, "items": "shadowed", "get": 5, "_x": "low"},
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]},
        {"role": "tool", "content": "42"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
    ],
    "text": "one\ntwo\r\nthree\n",
    "think": "<think>\nwhy\n</think>\n\nanswer</think>tail",
    "odd": "q'uo\"te\\ \t\x01é",
}

TEMPLATES = r"""
{{ s }}|{{ u }}|{{ empty }}|{{ n }}|{{ f }}|{{ t }}|{{ no }}|{{ nil }}|{{ missing }}
{{ list }} {{ d }} {{ (1,) }} {{ (1, 'a') }} {{ [] }} {{ {} }} {{ () }}
{{ odd }} {{ [odd] }} {{ ["it's", 'say "x"', 'both \' and "'] }}
{{ 1.0 }} {{ 1e16 }} {{ 1e15 }} {{ 1.5e-7 }} {{ 0.0001 }} {{ 0.00001 }} {{ 123456789.125 }} {{ 1e100 }} {{ -0.0 }} {{ 3.0 * 2 }}
{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 % 2 }} {{ -7.5 // 2 }} {{ 2 ** 10 }} {{ 2 ** -1 }} {{ 2 ** 0.5 }} {{ -2 ** 2 }}
{{ 1 ~ 2 }} {{ 'a' ~ none ~ true ~ 1.0 ~ missing }} {{ 1 ~ 2 * 3 }} {{ 'a' + 2 ~ 3 }}
{{ 1 + 2 ~ 3 }}
{{ 'ab' * 3 }} {{ 3 * 'ab' }} {{ [1] * 2 }} {{ 'x' * -1 }} {{ true + 1 }} {{ 'a' + 'b' }} {{ [1] + [2] }}
{{ -n }} {{ +n }} {{ -f }} {{ - 3 | abs }} {{ -3 | abs }} {{ not t }} {{ not missing }} {{ not not n }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 3 > 2 >= 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 1 }} {{ 'a' != 1 }} {{ none == none }} {{ none == missing }} {{ missing == absent }}
{{ 'el' in s }} {{ 'x' not in s }} {{ 3 in list }} {{ 9 in list }} {{ 'z' in d }} {{ 'q' in d }} {{ 1 in missing }} {{ 2 in range(5) }} {{ 7 in range(0, 9, 2) }} {{ true in [1] }} {{ d.a in [d.a] }}
{{ t and 'x' }} {{ no and 'x' }} {{ no or 'y' }} {{ 'a' or 'b' }} {{ empty or 0 or none }} {{ t and no or 'z' }} {{ not t or t }}
{{ 'yes' if t else 'no' }} {{ 'yes' if no }} {{ 'a' if no else 'b' if no else 'c' }} {{ ('a' if t else 'b') ~ 'c' }} {{ 'a' ~ 'b' if t else 'c' }}
{{ messages[0].role }} {{ messages[-1]['role'] }} {{ messages[99] }} {{ messages[0].nothing }} {{ messages[0]['nothing'] }} {{ messages.0.role }} {{ s[0] }} {{ s[-1] }} {{ u[2:5] }} {{ u[5] }} {{ s[99] }} {{ d['a']['b'][2].c }}
{{ list[::-1] }} {{ list[1:] }} {{ list[:1] }} {{ list[-2:] }} {{ list[5:] }} {{ list[::2] }} {{ list[2:0:-1] }} {{ list[-99:99] }} {{ s[::-1] }} {{ s[1:4] }} {{ s[:-3] }} {{ s[-3:] }} {{ u[::-1] }} {{ u[1:-1:2] }} {{ list[none:2] }} {{ range(10)[2:8:3] | list }} {{ (1, 2, 3)[1:] }}
{{ d['items'] }} {{ d.get('z') }} {{ d.get('q') }} {{ d.get('q', 'def') }} {{ d._x }} {{ d['_x'] }}
{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}={{ v }};{% endfor %} {{ {'b': 1, 'a': 2}.keys() | list }} {{ {'b': 1, 'a': 2}.values() | list }} {{ {'b': 1} | items | list }} {{ {'b': {'c': {'d': 1}}}['b']['c'] }}
{{ s.upper() }} {{ s.lower() }} {{ "they're bill's 2nd friends" | title }} {{ s.title() }} {{ 'hELLO wORLD'.capitalize() }} {{ s | upper }} {{ s | lower }} {{ 'hELLO' | capitalize }}
{{ s.startswith('He') }} {{ s.endswith('ld') }} {{ s.startswith(('x', 'He')) }} {{ s.endswith(()) }} {{ s.find('o') }} {{ s.find('q') }} {{ s.rfind('o') }} {{ u.find('日') }} {{ s.count('l') }}
{{ s.split() }} {{ ' a  b c '.split() }} {{ 'a,b,,c'.split(',') }} {{ 'a,b,c'.split(',', 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ ' a  b c '.split(none, 1) }} {{ ' a  b c '.rsplit(none, 1) }} {{ 'a b c'.split(maxsplit=1) }} {{ ''.split() }} {{ ''.split(',') }} {{ 'abc'.split('abc') }} {{ ' a '.split(none, 0) }}
{{ '  x '.strip() }}| {{ 'xxaxx'.strip('x') }} {{ 'xyaxy'.lstrip('xy') }} {{ 'xyaxy'.rstrip('xy') }} {{ '\n\ta\n'.strip() }}| {{ u.strip() }}| {{ u | trim }}| {{ '--a-' | trim('-') }} {{ 5 | trim }} {{ missing | trim }}|
{{ 'aXbXc'.replace('X', '-') }} {{ 'aXbXc'.replace('X', '-', 1) }} {{ 'abc'.replace('', '-') }} {{ 'aXbXc' | replace('X', '-') }} {{ 'aXbXc' | replace('X', '-', 1) }} {{ 123 | replace(2, 9) }} {{ 'aaa' | replace(old='a', new='b', count=2) }}
{{ ', '.join(['a', 'b']) }} {{ ['a', 1, none] | join }} {{ ['a', 1, none] | join(', ') }} {{ messages | join('/', attribute='role') }} {{ 'abc' | join('-') }} {{ missing | join }}|
{{ '<think>\n' }}{{ think.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') }}|{{ think.split('</think>')[-1].lstrip('\n') }}
{{ missing | default('x') }} {{ nil | default('x') }} {{ nil | default('x', true) }} {{ empty | d('y', boolean=true) }} {{ empty | d('y') }}| {{ missing | d }}| {{ missing.foo | default('x') if missing is defined else 'safe' }} {{ d.q | default('nope') }}
{{ s | length }} {{ u | length }} {{ list | length }} {{ d | length }} {{ missing | length }} {{ range(5) | length }} {{ list | count }} {{ (1, 2) | length }}
{{ list | first }} {{ list | last }} {{ s | first }} {{ s | last }} {{ [] | first }}| {{ d | first }} {{ d | last }} {{ missing | first }}| {{ u | last }}|
{{ list | reverse | list }} {{ s | reverse }} {{ d | list }} {{ 'abc' | list }} {{ range(3) | list }} {{ missing | list }} {{ u | trim | list }}
{{ list | sort }} {{ words | sort }} {{ words | sort(reverse=true) }} {{ words | sort(case_sensitive=true) }} {{ messages | sort(attribute='role') | map(attribute='role') | list }} {{ words | unique | list }} {{ words | unique(case_sensitive=true) | list }} {{ [1, 1.0, true, 2] | unique | list }}
{{ {'b': 1, 'A': 3, 'c': 2} | dictsort }} {{ {'b': 1, 'A': 3, 'c': 2} | dictsort(true) }} {{ {'b': 1, 'A': 3, 'c': 2} | dictsort(by='value') }} {{ {'b': 1, 'A': 3} | dictsort(reverse=true) }}
{{ messages | map(attribute='role') | list }} {{ messages | map(attribute='content') | first }} {{ words | map('upper') | list }} {{ ['a-b'] | map('replace', '-', '+') | list }} {{ messages | map(attribute='q', default='none') | list }} {{ messages | map(attribute='tool_calls') | list | length }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | selectattr('role', '==', 'user') | map(attribute='role') | join(',') }} {{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | list }} {{ messages | selectattr('tool_calls') | list | length }} {{ messages | selectattr('tool_calls', 'defined') | list | length }} {{ list | select('odd') | list }} {{ list | reject('odd') | list }} {{ [0, 1, ''] | select | list }} {{ [{'a': {'b': 1}}] | map(attribute='a.b') | list }}
{{ '42' | int }} {{ ' 42 ' | int }} {{ '4.9' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ 4.9 | int }} {{ -4.9 | int }} {{ 'ff' | int(base=16) }} {{ none | int }} {{ t | int }} {{ '1.5' | float }} {{ 'x' | float }} {{ 3 | float }} {{ '1e3' | float }} {{ -5 | abs }} {{ 2.5 | abs }}
{{ text | indent }}|{{ text | indent(2) }}|{{ text | indent(2, true) }}|{{ 'a\n\nb' | indent(2, blank=true) }}|{{ 'a\n\nb' | indent('> ') }}|{{ 'a\nb\n' | indent(width=1, first=true) }}|{{ '' | indent }}|
{{ n | string }} {{ t | string }} {{ nil | string }} {{ f | string }} {{ list | string }} {{ missing | string }}| {{ s | safe }} {{ 5 | safe }}
{{ d | tojson }} {{ odd | tojson }} {{ u | tojson }} {{ none | tojson }} {{ true | tojson }} {{ [] | tojson }} {{ {} | tojson }} {{ (1, 'a') | tojson }} {{ 1.0 | tojson }} {{ 1e16 | tojson }} {{ '<a href="x">&amp;' | tojson }} {{ '\u2028\x7f\x1f' | tojson }}
{{ d | tojson(indent=2) }} {{ [[], {}, [1]] | tojson(indent=1) }} {{ d | tojson(indent='\t') }} {{ [1, 2] | tojson(indent=0) }}
{{ u | tojson(ensure_ascii=true) }} {{ u | tojson(true) }} {{ d | tojson(separators=(',', ':')) }} {{ {'b': 1, 'a': {'d': 1, 'c': 2}} | tojson(sort_keys=true) }} {{ [1, {'a': 2}] | tojson(indent=2, separators=(',', ': ')) }}
{{ s is string }} {{ n is string }} {{ n is number }} {{ t is number }} {{ f is number }} {{ n is integer }} {{ t is integer }} {{ f is integer }} {{ f is float }} {{ n is float }} {{ t is boolean }} {{ n is boolean }} {{ nil is none }} {{ n is none }} {{ d is mapping }} {{ list is mapping }}
{{ list is sequence }} {{ s is sequence }} {{ d is sequence }} {{ n is sequence }} {{ missing is sequence }} {{ list is iterable }} {{ s is iterable }} {{ d is iterable }} {{ n is iterable }} {{ none is iterable }} {{ missing is iterable }} {{ (1,) is sequence }} {{ range(3) is sequence }}
{{ s is defined }} {{ missing is defined }} {{ missing is undefined }} {{ d.q is defined }} {{ d.z is defined }} {{ nil is defined }} {{ messages[99] is defined }} {{ missing is not defined }} {{ not missing is defined }}
{{ t is true }} {{ 1 is true }} {{ no is false }} {{ 0 is false }} {{ n is odd }} {{ n is even }} {{ n is divisibleby 7 }} {{ n is divisibleby(2) }} {{ n is eq 7 }} {{ n is equalto 7 }} {{ n is ne 7 }} {{ n is in [7, 8] }} {{ n is not in [7] }} {{ n is gt 3 }} {{ n is lessthan 3 }} {{ 'ab' is lower }} {{ 'AB' is upper }} {{ 'aB' is lower }} {{ nil is sameas none }} {{ range is callable }} {{ n is callable }}
{{ missing is defined and missing.x }} {{ d.a.b is sequence and d.a.b is not string }} {{ 'x' if nil is none else 'y' }} {{ n == 7 is true }} {{ n is number and n > 3 }}
{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.depth }} {% endfor %}
{% for x in list %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}{% for x in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }} {% endfor %}
{% for x in [] %}x{% else %}none{% endfor %} {% for x in missing %}x{% else %}undefined{% endfor %} {% for x in list if x > 5 %}x{% else %}filtered{% endfor %}
{% for x in list if x > 1 %}{{ x }}:{{ loop.index }}/{{ loop.length }} {% endfor %} {% for c in 'añ' %}[{{ c }}]{% endfor %} {% for k in {'a': 1} %}{{ k }}{% endfor %} {% for a, b in [(1, 2), [3, 4]] %}{{ a }}-{{ b }} {% endfor %}
{% for x in range(10) %}{% if x == 2 %}{% continue %}{% endif %}{% if x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %} {% for x in range(3) %}{% for y in range(3) %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{% endfor %}
{% for x in range(2) %}{% for y in range(2) %}{{ loop.index }}{{ loop.depth }}{% endfor %}{{ loop.index }}{{ loop.depth }} {% endfor %} {{ loop }}|
{% set x = 1 %}{% for i in range(3) %}{{ x }}{% set x = x + 1 %}{{ x }} {% endfor %}{{ x }} {% if t %}{% set x = 5 %}{% endif %}{{ x }}
{% set ns = namespace(a=1, b='x') %}{% for i in range(3) %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }} {{ ns.b }} {{ ns.c }}| {% set ns.c = [1] %}{{ ns.c }} {% set ns2 = namespace({'q': 1}, r=2) %}{{ ns2.q }}{{ ns2.r }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set c = 1, 2 %}{{ c }} {% set (e, g) = [3, 4] %}{{ e }}{{ g }} {% set x %}block {{ n }}{% endset %}[{{ x }}] {% set y | upper %}shout {{ n }}{% endset %}{{ y }} {% set z | trim | length %}  abc {% endset %}{{ z }}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(a=5, b=6) }} {{ m() }}| {{ m('x') | upper }} {{ m(1) + m(2) }} {{ m is callable }}
{% macro outer(x) %}{% macro inner(y) %}{{ x }}{{ y }}{% endmacro %}{{ inner(1) }}{{ inner(2) }}{% endmacro %}{{ outer('a') }} {% set v = 1 %}{% macro late() %}{{ v }}{% endmacro %}{% set v = 2 %}{{ late() }}
{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * (fact(k - 1) | int) }}{% endif %}{% endmacro %}{{ fact(6) }} {% for i in range(2) %}{% macro lm() %}{{ i }}{% endmacro %}{{ lm() }}{% endfor %}
{{ range(3) }} {{ range(1, 3) | list }} {{ range(5, 0, -2) | list }} {{ range(0) | list }} {{ dict(a=1, b='x') }} {{ dict({'q': 1}, r=2) }} {{ dict([('a', 1)]) }}
{% generation %}body {{ n }}{% endgeneration %} {% generation %}{% set gx = 1 %}{% endgeneration %}{{ gx }}|
{% if n > 5 %}big{% elif n > 3 %}mid{% else %}small{% endif %} {% if missing %}x{% else %}y{% endif %} {% if nil is none and not missing %}ok{% endif %}
{# comment #}a{#- c -#} b {#+ d +#} c {# {{ x }} {% y %} #}d {#-#}e{##}f
{{ '{{' }} {{ '%}' }} {{ "}}" }} {{ {'a': {'b': '}}'}}['a']['b'] }} {{ '{#' }} {{ "a\tb\nc\\d\'e\"f\x41\u00e9\101\q" }} {{ 'a' 'b' "c" }}
{{- s -}}  x  {{ s }}  {%- if t %}  y  {% endif -%}  z
a {% if t -%}  b  {%- endif %}  c  {%+ if t +%}  d  {%+ endif %}  e
{{ 1_000 }} {{ 0x1F }} {{ 0b11 }} {{ 0o17 }} {{ 1.5E+2 }}
{{ messages[1:] | map(attribute='role') | join(' ') }} {{ (messages | last).content[0].text }} {{ messages[2].tool_calls[0].function.arguments.x }} {{ messages[2]['tool_calls'][0]['function']['name'] }}
{% for m in messages[::-1] %}{% set index = (messages|length - 1) - loop.index0 %}{{ index }}{{ m.role }} {% endfor %}{% for m in messages %}{% if loop.previtem and loop.previtem.role != 'tool' %}p{% endif %}{% if not loop.last and loop.nextitem.role != 'tool' %}n{% endif %}{% endfor %}
{% for m in messages %}{% if m.content is string %}s{% elif m.content is iterable and m.content is not mapping %}{% for i in m.content %}{% if 'image' in i or 'image_url' in i or i.type == 'image' %}I{% elif 'text' in i %}{{ i.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}
{{ raise_exception('stop here') }}
{{ missing.foo }}
{{ missing + 1 }}
{{ 1 + missing }}
{{ missing < 1 }}
{{ -missing }}
{{ missing() }}
{{ missing['x'] }}
{{ missing[1:] }}
{{ d.q.r }}
{{ s.nothing() }}
{{ missing | tojson }}
{{ missing | int }}
{{ missing | abs }}
{{ list.append(1) }}
{{ d.update({'a': 1}) }}
{{ d.pop('z') }}
{{ d.clear }}|{{ list.append }}|{{ s.__class__ }}|
{{ s.__class__.__mro__ }}
{{ ''.__class__() }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 'a' + 1 }}
{{ 1 + 'a' }}
{{ 'a' < 1 }}
{{ [1] + (1,) }}
{{ 'a' * 'b' }}
{{ 1 in 'abc' }}
{{ missing in 'abc' }}
{{ 'a' in 5 }}
{{ 5 | length }}
{{ 5 | list }}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for a, b in [(1, 2, 3)] %}{% endfor %}
{% for k, v in 'x' | items %}{% endfor %}
{{ range(200000) }}
{{ range() }}
{{ range(1, 2, 0) }}
{{ list[::0] }}
{{ list['a':] }}
{{ s.split('') }}
{{ s.split(1) }}
{{ s.join([1]) }}
{{ s.startswith(1) }}
{{ x.y.z }}
{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{% endmacro %}{{ m(b=2) }}
{% macro m(a) %}{% endmacro %}{{ m(1, a=2) }}
{% set q.a = 1 %}
{% set d.a = 1 %}
{{ n() }}
{{ [{}, []] | unique | list }}
{{ [1, 'a'] | sort }}
{% if %}x{% endif %}
{% if t %}
{% endif %}
{% for x in list %}{% else %}{% elif %}{% endfor %}
{% break %}
{{ }}
{{ 1 + }}
{{ (1 }}
{{ 1) }}
{{ [1, 2 }}
{{ 'abc }}
{{ a b }}
{{ a..b }}
{{ 1 is string is number }}
{% unknown %}
{% endif %}
{% set %}
{% set 1 = 2 %}
{% set true = 2 %}
{% macro %}{% endmacro %}
{% macro m(a=1, b) %}{% endmacro %}
{{ f(a=1, 2) }}
{# open
{% raw %}open
{{ 1 | }}
{{ 1 is }}
{{ $ }}
{{ !x }}
{% for x list %}{% endfor %}
{% if t %}x{% else %}y{% else %}z{% endif %}
{{ n | nofilter }}
{{ n is notest }}
{% if no %}{{ n | nofilter }}{% endif %}fine
"""

# Templates of several lines.
RAW = r"""{% raw %}{{ not }} {% a %} {# b #}{% endraw %} {%- raw -%}  x  {%- endraw -%}  y {% raw %}
  z {% endraw %}
end
"""

LINES = r"""{% if t %}line{% endif %}
  {% if t %}
    indented {{ n }}
  {% endif %}
	{% for x in list %}
  {{ x }}
	{% endfor %}
done
  {# a comment on its own line #}
next {# a comment at the end #}
  {%- if t %}

  two  {%- endif %}

text   {% if t %}inline{% endif %}
  {{ n }}
 {%+ if t %}kept{% endif %}

"""


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("body"), [], [], body).set_lineno(line)

    def body(self, caller):
        return caller()


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols]
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda fmt: datetime.datetime(2026, 3, 7, 5, 4, 9, 21000).strftime(fmt)
    return env


def run(source):
    try:
        return {"want": environment().from_string(source).render(**VARS)}
    except Exception as error:
        return {"error": type(error).__name__}


STRFTIME = [
    "%Y-%m-%d", "%d %B %Y", "%b %d, %Y", "%A %a %B %b %p %I:%M:%S", "%H%M%S %f %j %y %C", "%e|%k|%l|%-d|%-m|%_d|%-I",
    "%u %w %U %W %V %G", "%c | %x | %X | %D | %F | %T | %R | %r", "100%% %n %t %Z|%z|", "plain",
]


def main():
    sources = TEMPLATES.strip("\n").split("\n") + [RAW]
    sources += [LINES, LINES.rstrip("\n"), LINES.replace("\n", "\r\n"), LINES.replace("\n", "\r")]
    sources += ["{{ strftime_now('%s') }}" % f for f in STRFTIME]
    sources += ["", "\n", "\n\n", "text", "{", "{ {", "}}", "%}", "{{ n }}\n", "a\n{% if t %}\n{% endif %}\nb\n"]
    cases = [{"template": s, **run(s)} for s in sources]
    out = {"made_with": "jinja2 " + jinja2.__version__, "vars": VARS, "cases": cases}
    pathlib.Path(__file__).with_name("cases.json").write_text(json.dumps(out, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    main()
