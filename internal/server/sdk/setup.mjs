// What the tests of both clients share: where the servers are, and the tool that the demonstration model knows.
import assert from 'node:assert/strict'

export const { SPLASH_URL: url, SPLASH_SMALL_URL: smallURL, SPLASH_KEY: key } = process.env
export const model = 'splash/pebble'
export const question = 'What is the capital of France?'
export const answer = 'The capital of France is Paris.'
export const weatherQuestion = 'What is the weather in Paris?'

export const city = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
}

// failure is what a promise is rejected with.
export async function failure(promise) {
  let value
  try {
    value = await promise
  } catch (e) {
    return e
  }
  assert.fail(`no error, but ${JSON.stringify(value)}`)
}

// status is the server's own account of itself.
export async function status(base) {
  const response = await fetch(`${base}/status`, { headers: { authorization: `Bearer ${key}` } })
  assert.equal(response.status, 200)
  return response.json()
}

// idle waits until the server has no request.
export async function idle(base) {
  for (;;) {
    const s = await status(base)
    if (s.http.requests.active === 0 && s.scheduler.active === 0) return
    await new Promise((done) => setTimeout(done, 20))
  }
}

// occupy takes the only place of the small server with a stream, and returns what lets it go.
async function occupy() {
  const control = new AbortController()
  const response = await fetch(`${smallURL}/v1/completions`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ prompt: 'x', max_tokens: 4000, ignore_eos: true, stream: true }),
    signal: control.signal,
  })
  assert.equal(response.status, 200)
  const read = response.text().catch(() => {})
  return async () => {
    control.abort()
    await read
  }
}

// overload sends a request while the small server is busy. It returns the error, and what ends the other request. A machine
// may be so slow that the other has ended by itself; then it is tried again.
export async function overload(send) {
  for (let tries = 0; tries < 10; tries++) {
    const release = await occupy()
    try {
      await send()
    } catch (error) {
      return { error, release }
    }
    await release()
    await idle(smallURL)
  }
  assert.fail('the server takes more than its queue holds')
}
