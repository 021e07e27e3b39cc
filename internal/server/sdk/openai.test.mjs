// OpenAI's client against splash serve.
import assert from 'node:assert/strict'
import test from 'node:test'
import OpenAI from 'openai'
import { LengthFinishReasonError } from 'openai/error'
import { zodFunction, zodResponseFormat, zodTextFormat } from 'openai/helpers/zod'
import { z } from 'zod'
import { answer, city, failure, idle, key, model, overload, question, smallURL, url, weatherQuestion } from './setup.mjs'

const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 })
const small = new OpenAI({ baseURL: `${smallURL}/v1`, apiKey: key, maxRetries: 0 })
const ask = { model, messages: [{ role: 'user', content: question }], temperature: 0 }

test('models', async () => {
  const ids = []
  for await (const m of client.models.list()) ids.push(m.id)
  assert.deepEqual(ids, [model])
  const m = await client.models.retrieve(model)
  assert.equal(m.id, model)
  assert.equal(m.object, 'model')
})

test('chat', async () => {
  const c = await client.chat.completions.create(ask)
  assert.equal(c.object, 'chat.completion')
  assert.equal(c.model, model)
  assert.equal(c.choices[0].message.content, answer)
  assert.match(c.choices[0].message.reasoning_content, /Paris/)
  assert.equal(c.choices[0].finish_reason, 'stop')
  assert.equal(c.usage.total_tokens, c.usage.prompt_tokens + c.usage.completion_tokens)
  assert.ok(c.usage.completion_tokens_details.reasoning_tokens > 0)

  let content = ''
  let reasoning = ''
  let usage
  const stream = await client.chat.completions.create({ ...ask, stream: true, stream_options: { include_usage: true } })
  for await (const chunk of stream) {
    content += chunk.choices[0]?.delta.content ?? ''
    reasoning += chunk.choices[0]?.delta.reasoning_content ?? ''
    usage = chunk.usage ?? usage
  }
  assert.equal(content, answer)
  assert.match(reasoning, /Paris/)
  assert.equal(usage.total_tokens, usage.prompt_tokens + usage.completion_tokens)

  const runner = client.chat.completions.stream({ ...ask, reasoning_effort: 'none', stream_options: { include_usage: true } })
  let seen = ''
  runner.on('content', (delta) => (seen += delta))
  const final = await runner.finalChatCompletion()
  assert.equal(seen, answer)
  assert.equal(final.choices[0].message.content, answer)
  assert.equal((await runner.totalUsage()).total_tokens, final.usage.total_tokens)
})

test('text completion', async () => {
  const request = { model, prompt: 'The capital of France', max_tokens: 5, temperature: 0, ignore_eos: true }
  const c = await client.completions.create(request)
  assert.equal(c.object, 'text_completion')
  assert.equal(c.usage.completion_tokens, 5)
  let text = ''
  const stream = await client.completions.create({ ...request, stream: true })
  for await (const chunk of stream) text += chunk.choices[0]?.text ?? ''
  assert.ok(text)
})

const weather = { type: 'function', function: { name: 'get_weather', description: 'Get the weather of a city.', parameters: city } }

test('tools', async () => {
  const messages = [{ role: 'user', content: weatherQuestion }]
  const request = { model, messages, tools: [weather], temperature: 0 }
  const c = await client.chat.completions.create(request)
  assert.equal(c.choices[0].finish_reason, 'tool_calls')
  const message = c.choices[0].message
  assert.equal(message.content, null)
  assert.equal(message.tool_calls.length, 1)
  const call = message.tool_calls[0]
  assert.equal(call.type, 'function')
  assert.equal(call.function.name, 'get_weather')
  assert.deepEqual(JSON.parse(call.function.arguments), { city: 'Paris' })

  const streamed = await client.chat.completions.stream(request).finalMessage()
  assert.deepEqual(
    streamed.tool_calls.map((t) => [t.function.name, JSON.parse(t.function.arguments)]),
    [['get_weather', { city: 'Paris' }]],
  )

  const result = { role: 'tool', tool_call_id: call.id, content: 'sunny, 21 degrees' }
  const after = await client.chat.completions.create({ ...request, messages: [...messages, message, result] })
  assert.equal(after.choices[0].finish_reason, 'stop')
  assert.ok(after.choices[0].message.content)
})

test('runTools', async () => {
  let asked
  const runner = client.chat.completions.runTools({
    model,
    temperature: 0,
    messages: [{ role: 'user', content: weatherQuestion }],
    tools: [
      zodFunction({
        name: 'get_weather', // strict
        description: 'Get the weather of a city.',
        parameters: z.object({ city: z.string() }),
        function: (args) => {
          asked = args
          return 'sunny, 21 degrees'
        },
      }),
    ],
  })
  assert.ok(await runner.finalContent())
  assert.deepEqual(asked, { city: 'Paris' })
})

test('tool choice', async () => {
  const other = { type: 'function', function: { name: 'get_time', parameters: city } }
  const request = { ...ask, tools: [weather, other], max_tokens: 200, reasoning_effort: 'none', parallel_tool_calls: false }
  const required = await client.chat.completions.create({ ...request, tool_choice: 'required' })
  assert.equal(required.choices[0].message.tool_calls.length, 1)
  const named = await client.chat.completions.create({
    ...request,
    tool_choice: { type: 'function', function: { name: 'get_time' } },
  })
  assert.equal(named.choices[0].message.tool_calls[0].function.name, 'get_time')
  const none = await client.chat.completions.create({ ...request, tool_choice: 'none' })
  assert.equal(none.choices[0].message.tool_calls, undefined)
})

test('structured output', async () => {
  const Verdict = z.object({ color: z.enum(['red', 'green']), score: z.number().int().min(1).max(5) })
  const request = { ...ask, response_format: zodResponseFormat(Verdict, 'verdict'), max_tokens: 900, frequency_penalty: 0.5 }
  const c = await client.chat.completions.parse(request)
  assert.equal(Verdict.safeParse(c.choices[0].message.parsed).error, undefined)
  assert.deepEqual(JSON.parse(c.choices[0].message.content), c.choices[0].message.parsed)
  const streamed = await client.chat.completions.stream({ ...request, reasoning_effort: 'none' }).finalChatCompletion()
  assert.equal(Verdict.safeParse(streamed.choices[0].message.parsed).error, undefined)
  const cut = await failure(client.chat.completions.parse({ ...request, max_tokens: 2 }))
  assert.ok(cut instanceof LengthFinishReasonError, cut)
})

const input = { model, input: question, temperature: 0 }

test('responses', async () => {
  const r = await client.responses.create(input)
  assert.equal(r.object, 'response')
  assert.equal(r.status, 'completed')
  assert.equal(r.output_text, answer)
  assert.deepEqual(r.output.map((item) => item.type), ['reasoning', 'message'])
  assert.match(r.output[0].summary[0].text, /Paris/)
  assert.equal(r.usage.total_tokens, r.usage.input_tokens + r.usage.output_tokens)

  let text = ''
  let last = -1
  let end
  for await (const event of await client.responses.create({ ...input, stream: true })) {
    assert.equal(event.sequence_number, ++last)
    if (event.type === 'response.output_text.delta') text += event.delta
    end = event
  }
  assert.equal(text, answer)
  assert.equal(end.type, 'response.completed')
  assert.equal(end.response.output_text ?? end.response.output.at(-1).content[0].text, answer)

  const stream = client.responses.stream({ ...input, reasoning: { effort: 'none' } })
  let seen = ''
  stream.on('response.output_text.delta', (event) => (seen += event.delta))
  const final = await stream.finalResponse()
  assert.equal(seen, answer)
  assert.equal(final.output_text, answer)

  const next = await client.responses.create({ ...input, input: 'What is the capital of Italy?', previous_response_id: r.id })
  assert.equal(next.previous_response_id, r.id)
  assert.ok(next.usage.input_tokens > r.usage.input_tokens)
  assert.equal((await client.responses.retrieve(r.id)).output_text, answer)
  await client.responses.delete(r.id)
  assert.ok((await failure(client.responses.retrieve(r.id))) instanceof OpenAI.NotFoundError)
  const gone = await failure(client.responses.create({ ...input, previous_response_id: r.id }))
  assert.ok(gone instanceof OpenAI.NotFoundError)
  assert.equal(gone.code, 'previous_response_not_found')

  const cut = await client.responses.create({ ...input, max_output_tokens: 3, store: false })
  assert.equal(cut.status, 'incomplete')
  assert.equal(cut.incomplete_details.reason, 'max_output_tokens')
})

test('responses with tools', async () => {
  const tools = [{ type: 'function', name: 'get_weather', description: 'Get the weather of a city.', parameters: city, strict: true }]
  const request = { ...input, input: weatherQuestion, tools }
  const r = await client.responses.create(request)
  const call = r.output.find((item) => item.type === 'function_call')
  assert.equal(call.name, 'get_weather')
  assert.deepEqual(JSON.parse(call.arguments), { city: 'Paris' })
  const streamed = await client.responses.stream(request).finalResponse()
  assert.deepEqual(streamed.output.find((item) => item.type === 'function_call').parsed_arguments, { city: 'Paris' })
  const result = { type: 'function_call_output', call_id: call.call_id, output: 'sunny, 21 degrees' }
  const after = await client.responses.create({ ...request, input: [result], previous_response_id: r.id })
  assert.ok(after.output_text)
  const whole = await client.responses.create({ ...request, input: [{ role: 'user', content: weatherQuestion }, ...r.output, result] })
  assert.ok(whole.output_text)
})

test('structured responses', async () => {
  const Verdict = z.object({ sure: z.boolean(), color: z.enum(['red', 'green']) })
  const request = { ...input, text: { format: zodTextFormat(Verdict, 'verdict') }, max_output_tokens: 800, reasoning: { effort: 'none' } }
  const r = await client.responses.parse(request)
  assert.equal(Verdict.safeParse(r.output_parsed).error, undefined)
  const streamed = await client.responses.stream(request).finalResponse()
  assert.equal(Verdict.safeParse(streamed.output_parsed).error, undefined)
})

test('errors', async (t) => {
  const is = async (what, promise, type, status, code) => {
    const e = await failure(promise)
    assert.ok(e instanceof type, `${what}: ${e.constructor.name}: ${e.message}`)
    assert.ok(e instanceof OpenAI.APIError, what)
    assert.equal(e.status, status, what)
    assert.equal(e.code, code, what)
    assert.ok(e.message.length > 10, what)
    return e
  }
  const wrong = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'wrong', maxRetries: 0 })
  await is('key', wrong.models.list(), OpenAI.AuthenticationError, 401, 'authentication_error')
  await is('key', wrong.chat.completions.create(ask), OpenAI.AuthenticationError, 401, 'authentication_error')
  await is('model', client.chat.completions.create({ ...ask, model: 'other' }), OpenAI.NotFoundError, 404, 'model_not_found')
  await is('model', client.models.retrieve('other/model'), OpenAI.NotFoundError, 404, 'model_not_found')
  const e = await is('field', client.chat.completions.create({ ...ask, temperature: 5 }), OpenAI.BadRequestError, 400, 'invalid_request_error')
  assert.match(e.message, /temperature/)
  assert.equal(e.type, 'invalid_request_error')
  await is('stream', client.chat.completions.create({ ...ask, temperature: 5, stream: true }), OpenAI.BadRequestError, 400, 'invalid_request_error')
  await is('context', client.chat.completions.create({ ...ask, max_tokens: 100000 }), OpenAI.BadRequestError, 400, 'context_length_exceeded')
  const schema = { type: 'json_schema', json_schema: { name: 'x', schema: { $ref: 'https://example.com/x' } } }
  await is('schema', client.chat.completions.create({ ...ask, response_format: schema }), OpenAI.BadRequestError, 400, 'invalid_request_error')
  await is('forbidden', client.models.list({ headers: { origin: 'https://other.example' } }), OpenAI.PermissionDeniedError, 403, 'forbidden')
  await is('size', small.completions.create({ model, prompt: 'x'.repeat(5000) }), OpenAI.APIError, 413, 'request_too_large')
  await is('media type', client.post('/chat/completions', { body: 'x', headers: { 'content-type': 'text/plain' } }), OpenAI.APIError, 415, 'invalid_request_error')
  await is('method', client.patch('/models', { body: {} }), OpenAI.InternalServerError, 501, 'not_implemented')
  await is('deadline', client.chat.completions.create({ ...ask, messages: [{ role: 'user', content: 'cat '.repeat(2500) }], timeout: 0.005 }), OpenAI.InternalServerError, 504, 'request_timeout')

  const { error, release } = await overload(() => small.completions.create({ model, prompt: 'x', max_tokens: 1 }))
  await is('overload', Promise.reject(error), OpenAI.InternalServerError, 503, 'frontend_overloaded')
  // A client that tries again is told when.
  const patient = new OpenAI({ baseURL: `${smallURL}/v1`, apiKey: key, maxRetries: 20 })
  const retried = patient.completions.create({ model, prompt: 'x', max_tokens: 1 })
  await release()
  assert.equal((await retried).usage.completion_tokens, 1)
})

test('timeouts and aborts', async () => {
  const endless = { model, prompt: 'x', max_tokens: 4000, ignore_eos: true }
  const late = await failure(small.completions.create(endless, { timeout: 100 }))
  assert.ok(late instanceof OpenAI.APIConnectionTimeoutError, late)
  await idle(smallURL)
  const control = new AbortController()
  const aborted = failure(small.completions.create(endless, { signal: control.signal }))
  setTimeout(() => control.abort(), 100)
  assert.ok((await aborted) instanceof OpenAI.APIUserAbortError)
  await idle(smallURL)
  const stream = await small.completions.create({ ...endless, stream: true })
  for await (const _ of stream) break // hangs up
  await idle(smallURL)
})
