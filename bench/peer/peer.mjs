// The llama.cpp side of "go run ./bench/peer": runs what its standard input asks for, one line each, and answers with one
// line of JSON. "prefill N" evaluates a prompt of N tokens in an empty sequence, "decode N" generates N tokens after it.
//
//   node peer.mjs MODEL.gguf THREADS
import {createInterface} from "node:readline";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [path, threads] = [process.argv[2], Number(process.argv[3])];
const answer = (o) => process.stdout.write(JSON.stringify(o) + "\n");

const llama = await getLlama({gpu: false, build: "never", maxThreads: threads, logLevel: LlamaLogLevel.error});
const model = await llama.loadModel({modelPath: path});
const context = await model.createContext({contextSize: 1024, batchSize: 512, threads, sequences: 1});
const sequence = context.getSequence({checkpoints: {max: 0}});

async function prefill(n) {
    await sequence.clearHistory();
    const prompt = Array.from({length: n}, (_, i) => (i * 7919) % 30000 + 10);
    const began = performance.now();
    await sequence.evaluateWithoutGeneratingNewTokens(prompt);
    return {ms: performance.now() - began, tokens: n};
}

// decode times the tokens after the first, one by one. The likeliest token is taken, end of text or not.
async function decode(n) {
    const each = [];
    let before, last = 77;
    while (each.length < n) {
        for await (const token of sequence.evaluate([last], {temperature: 0, yieldEogToken: true})) {
            const now = performance.now();
            if (before !== undefined) each.push(now - before);
            before = now;
            last = token;
            if (each.length === n) break;
        }
    }
    return {ms: each.reduce((a, b) => a + b), tokens: n, each};
}

answer({build: `${llama.llamaCppRelease.repo} ${llama.llamaCppRelease.release}`, system: llama.systemInfo.trim()});
for await (const line of createInterface({input: process.stdin})) {
    const [what, n] = line.split(" ");
    answer(await (what === "prefill" ? prefill : decode)(Number(n)));
}
process.exit(0);
