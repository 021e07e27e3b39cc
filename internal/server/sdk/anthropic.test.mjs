// Anthropic's client against splash serve.
import assert from 'node:assert/strict'
import test from 'node:test'
import Anthropic from '@anthropic-ai/sdk'
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod'
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod'
import { z } from 'zod'
import { answer, city, failure, idle, key, model, overload, question, smallURL, url, weatherQuestion } from './setup.mjs'

const client = new Anthropic({ baseURL: url, apiKey: key, maxRetries: 0 })
const small = new Anthropic({ baseURL: smallURL, apiKey: key, maxRetries: 0 })
const ask = { model, max_tokens: 400, messages: [{ role: 'user', content: question }], temperature: 0 }
const thinking = { type: 'enabled', budget_tokens: 1024 }

test('models', async () => {
  const ids = []
  for await (const m of client.models.list()) ids.push(m.id)
  assert.deepEqual(ids, [model])
  assert.equal((await client.models.retrieve(model)).id, model)
})

test('messages', async () => {
  const m = await client.messages.create(ask)
  assert.equal(m.type, 'message')
  assert.equal(m.model, model)
  assert.deepEqual(m.content, [{ type: 'text', text: answer }])
  assert.equal(m.stop_reason, 'end_turn')
  const count = await client.messages.countTokens({ model, messages: ask.messages })
  assert.equal(m.usage.input_tokens + m.usage.cache_read_input_tokens, count.input_tokens)

  let text = ''
  const kinds = new Set()
  for await (const event of await client.messages.create({ ...ask, stream: true })) {
    kinds.add(event.type)
    if (event.type === 'content_block_delta') text += event.delta.text
  }
  assert.equal(text, answer)
  for (const kind of ['message_start', 'content_block_start', 'content_block_stop', 'message_delta', 'message_stop']) assert.ok(kinds.has(kind), kind)
})

test('message stream', async () => {
  const stream = client.messages.stream({ ...ask, thinking })
  let text = ''
  let thought = ''
  stream.on('text', (delta, snapshot) => {
    text += delta
    assert.equal(snapshot, text)
  })
  stream.on('thinking', (delta) => (thought += delta))
  const m = await stream.finalMessage()
  assert.equal(text, answer)
  assert.equal(await stream.finalText(), answer)
  assert.deepEqual(m.content.map((b) => b.type), ['thinking', 'text'])
  assert.equal(m.content[0].thinking, thought)
  assert.match(thought, /Paris/)
  assert.ok(m.usage.output_tokens > 0)
  const whole = await client.messages.create({ ...ask, thinking })
  assert.deepEqual(whole.content.map((b) => b.type), ['thinking', 'text'])
  assert.equal(whole.content[1].text, answer)
})

test('thinking sent back', async () => {
  for (const display of ['summarized', 'omitted']) {
    const mode = { type: 'adaptive', display }
    const first = await client.messages.stream({ ...ask, thinking: mode }).finalMessage()
    const [block] = first.content
    assert.equal(block.type, 'thinking')
    assert.equal(block.thinking === '', display === 'omitted')
    assert.equal(block.signature !== '', display === 'omitted')
    const messages = [...ask.messages, { role: 'assistant', content: first.content }, { role: 'user', content: 'What is the capital of Italy?' }]
    const second = await client.messages.create({ ...ask, messages, thinking: mode })
    assert.equal(second.content.at(-1).type, 'text')
    assert.equal(second.stop_reason, 'end_turn')
  }
})

const weather = { name: 'get_weather', description: 'Get the weather of a city.', input_schema: city }

test('tools', async () => {
  const request = { ...ask, messages: [{ role: 'user', content: weatherQuestion }], tools: [weather] }
  const m = await client.messages.create(request)
  assert.equal(m.stop_reason, 'tool_use')
  const use = m.content.find((b) => b.type === 'tool_use')
  assert.equal(use.name, 'get_weather')
  assert.deepEqual(use.input, { city: 'Paris' })
  const streamed = await client.messages.stream(request).finalMessage()
  assert.deepEqual(streamed.content.find((b) => b.type === 'tool_use').input, use.input)

  const messages = [
    ...request.messages,
    { role: 'assistant', content: m.content },
    { role: 'user', content: [{ type: 'tool_result', tool_use_id: use.id, content: 'sunny, 21 degrees' }] },
  ]
  const after = await client.messages.create({ ...request, messages })
  assert.equal(after.stop_reason, 'end_turn')
  assert.ok(after.content[0].text)
})

test('tool runner', async () => {
  let asked
  const runner = client.beta.messages.toolRunner({
    ...ask,
    messages: [{ role: 'user', content: weatherQuestion }],
    tools: [
      betaZodTool({
        name: 'get_weather',
        description: 'Get the weather of a city.',
        inputSchema: z.object({ city: z.string() }),
        run: (input) => {
          asked = input
          return 'sunny, 21 degrees'
        },
      }),
    ],
  })
  const last = await runner
  assert.deepEqual(asked, { city: 'Paris' })
  assert.equal(last.stop_reason, 'end_turn')
})

test('tool choice', async () => {
  const other = { name: 'get_time', input_schema: city, strict: true }
  const request = { ...ask, tools: [weather, other] }
  const any = await client.messages.create({ ...request, tool_choice: { type: 'any', disable_parallel_tool_use: true } })
  assert.equal(any.content.filter((b) => b.type === 'tool_use').length, 1)
  const named = await client.messages.create({ ...request, tool_choice: { type: 'tool', name: 'get_time' } })
  assert.equal(named.content.find((b) => b.type === 'tool_use').name, 'get_time')
  const none = await client.messages.create({ ...request, tool_choice: { type: 'none' } })
  assert.equal(none.content.some((b) => b.type === 'tool_use'), false)
})

test('structured output', async () => {
  const Verdict = z.object({ sure: z.boolean(), color: z.enum(['red', 'green']) })
  const config = { ...ask, max_tokens: 800, output_config: { format: zodOutputFormat(Verdict) } }
  const m = await client.messages.parse(config)
  assert.equal(Verdict.safeParse(m.parsed_output).error, undefined)
  const thought = await client.messages.parse({ ...config, thinking })
  assert.equal(thought.content[0].type, 'thinking')
  assert.equal(Verdict.safeParse(thought.parsed_output).error, undefined)
  const streamed = await client.messages.stream(config).finalMessage()
  assert.equal(Verdict.safeParse(JSON.parse(streamed.content[0].text)).error, undefined)
})

test('errors', async () => {
  const is = async (what, promise, type, status, kind) => {
    const e = await failure(promise)
    assert.ok(e instanceof type, `${what}: ${e.constructor.name}: ${e.message}`)
    assert.ok(e instanceof Anthropic.APIError, what)
    assert.equal(e.status, status, what)
    assert.equal(e.error.type, 'error', what)
    assert.equal(e.error.error.type, kind, what)
    return e
  }
  const wrong = new Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 })
  await is('key', wrong.messages.create(ask), Anthropic.AuthenticationError, 401, 'authentication_error')
  await is('model', client.messages.create({ ...ask, model: 'other' }), Anthropic.NotFoundError, 404, 'not_found_error')
  const e = await is('field', client.messages.create({ ...ask, temperature: 5 }), Anthropic.BadRequestError, 400, 'invalid_request_error')
  assert.match(e.message, /temperature/)
  await is('stream', client.messages.create({ ...ask, temperature: 5, stream: true }), Anthropic.BadRequestError, 400, 'invalid_request_error')
  await is('forbidden', client.messages.create(ask, { headers: { origin: 'https://other.example' } }), Anthropic.PermissionDeniedError, 403, 'permission_error')
  await is('prompt', client.messages.create({ ...ask, messages: [{ role: 'user', content: 'cat '.repeat(6000) }] }), Anthropic.BadRequestError, 400, 'invalid_request_error')
  await is('size', small.messages.create({ ...ask, system: 'x'.repeat(5000) }), Anthropic.APIError, 413, 'request_too_large')
  await is('deadline', client.messages.create({ ...ask, messages: [{ role: 'user', content: 'cat '.repeat(2500) }], timeout: 0.005 }), Anthropic.InternalServerError, 504, 'timeout_error')

  const { error, release } = await overload(() => small.messages.create({ ...ask, max_tokens: 1 }))
  await is('overload', Promise.reject(error), Anthropic.InternalServerError, 503, 'overloaded_error')
  const patient = new Anthropic({ baseURL: smallURL, apiKey: key, maxRetries: 20 })
  const retried = patient.messages.create({ ...ask, max_tokens: 1 })
  await release()
  assert.equal((await retried).stop_reason, 'max_tokens')
})

test('timeouts and aborts', async () => {
  const endless = { ...ask, max_tokens: 4000, messages: [{ role: 'user', content: 'Tell me a long story about a cat.' }], temperature: 2 }
  const late = await failure(small.messages.create(endless, { timeout: 1 }))
  assert.ok(late instanceof Anthropic.APIConnectionTimeoutError, late)
  await idle(smallURL)
  const stream = small.messages.stream(endless)
  stream.on('connect', () => stream.abort())
  assert.ok((await failure(stream.done())) instanceof Anthropic.APIUserAbortError)
  await idle(smallURL)
})
