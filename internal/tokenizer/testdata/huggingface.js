// Prints the lines of huggingface.jsonl: node huggingface.js QWEN35.json FLINT.json < texts.json
//
// The arguments are tokenizer.json files of the two profiles over one vocabulary; the input is a list of {text, nfc}.
// Needs the npm package "tokenizers", Hugging Face's tokenizers library, version 0.23.2.
const fs = require('fs');
const { Tokenizer } = require('tokenizers');

async function main() {
  const profiles = { qwen35: Tokenizer.fromFile(process.argv[2]), flint: Tokenizer.fromFile(process.argv[3]) };
  for (const line of JSON.parse(fs.readFileSync(0, 'utf8'))) {
    for (const [name, tokenizer] of Object.entries(profiles)) {
      const encoding = await tokenizer.encode(line.text, null, { addSpecialTokens: false });
      // Where each piece of the text as it is, without added tokens, ends: counted in characters.
      const pieces = tokenizer.getPreTokenizer().preTokenizeString(line.text).map(([, [, end]]) => end);
      line[name] = { ids: encoding.getIds(), pieces };
    }
    console.log(JSON.stringify(line));
  }
}
main();
