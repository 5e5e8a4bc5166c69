#!/usr/bin/env node
// Compares the tokenizers here with independent ones, on a corpus of many scripts, emoji, long white space, every byte and
// random strings:
//   npm install --prefix /tmp/originals tiktoken llama-tokenizer-js llama3-tokenizer-js mistral-tokenizer-js tokenizers
//   scripts/compare_tokenizers.mjs /tmp/originals build/release/adjoint [--strings 10000] [--expected tests/data/tokenizer_ids.json]
// It writes the vocabularies of those packages as files that Adjoint reads into FOLDER/files, and with --expected the few ids
// that the tests hold; nothing else of the packages is kept.
import {execFileSync} from 'node:child_process';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {pathToFileURL} from 'node:url';

const [folder, adjoint, ...rest] = process.argv.slice(2);
const option = (name, otherwise) => (rest.includes(name) ? rest[rest.indexOf(name) + 1] : otherwise);
if (!adjoint) {
  console.error('usage: compare_tokenizers.mjs FOLDER_WITH_NODE_MODULES ADJOINT [--strings N] [--expected FILE]');
  process.exit(2);
}
const modules = path.resolve(folder, 'node_modules');
const files = path.resolve(folder, 'files');
fs.mkdirSync(files, {recursive: true});
const require = createRequire(path.join(modules, 'package.json'));
const load = (file) => import(pathToFileURL(path.join(modules, file)).href);

// ---- the corpus

let state = 1234567n;
function random(below) {
  state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
  return Number((state >> 33n) % BigInt(below));
}
const pick = (list) => list[random(list.length)];

const scripts = [
  'The quick brown fox jumps over the lazy dog. It\'s what we\'ve said, isn\'t it? They\'LL see; I\'M sure, we\'D say.',
  'Être ou ne pas être, là est la question. Größe, Straße, naïve, coöperate, Ærøskøbing, ſ, \'ſ',
  'Съешь же ещё этих мягких французских булок, да выпей чаю. Їжак', 'Ξεσκεπάζω την ψυχοφθόρα βδελυγμία',
  'אבגד הוזח טיכל מנסע', 'مرحبا بالعالم، كيف حالك؟ ١٢٣', 'हिन्दी में लिखा हुआ पाठ १२३', 'বাংলা ভাষা', 'ภาษาไทยไม่มีช่องว่าง',
  '我能吞下玻璃而不伤身体。', '私はガラスを食べられます。', '나는 유리를 먹을 수 있어요.', 'Tiếng Việt: Tôi có thể ăn thủy tinh',
  'ქართული ენა', 'Հայերեն', 'አማርኛ', '👩‍👩‍👧‍👦 🇫🇷 👍🏽 😀😃😄 ❤️', 'e\u0301 a\u0308 \u1e9b\u0323 \ufb01 Å \u212b',
  '1 12 123 1234 12345678901234567890 ½ ² Ⅷ ٣ 3.14159', 'a\tb\n\nc\r\n\r\nd   e    \n   f\u00a0g\u2003h\u3000i\u0085j\u180ek',
  'def f(x):\n    return {"a": [1, 2], \'b\': x ** 2}  # comment\n\n\n\tif (a && b || !c) { x += 1; }\n',
  '<|endoftext|> <s> </s> [INST] <unk> <|im_start|>user', '!!!??? ... --- *** "\'`~@#$%^&*()_+-=[]{}|;:,.<>/?\\', '▁▁ ▁a▁ <0x0A> <0xFF>',
];
function corpus(strings) {
  const texts = ['', ...scripts, scripts.join(' '), scripts.join('\n\n')];
  for (const blank of [' ', '\n', '\t', '\r\n', '\u00a0', ' \n', '\u3000']) {
    for (const times of [1, 2, 3, 4, 7, 16, 31, 100, 1000]) texts.push(blank.repeat(times), `a${blank.repeat(times)}b`, blank.repeat(times) + 'a');
  }
  for (let i = 0; i < 128; ++i) texts.push(String.fromCharCode(i), `a${String.fromCharCode(i)} ${String.fromCharCode(i)}`);
  texts.push(Array.from({length: 256}, (_, i) => String.fromCharCode(i)).join(''));
  for (const c of ['a', '!', '1', 'é', '的']) for (const times of [10, 63, 64, 65, 66, 1000, 5000]) texts.push(c.repeat(times));
  // Characters that every one of these libraries knows: those of Unicode 14, less what is not assigned or stands for nothing.
  const known = [];
  for (let c = 1; c < 0x2fa20; ++c) {
    if (c >= 0xd800 && c <= 0xf8ff) continue;
    const s = String.fromCodePoint(c);
    if (!/\p{Cn}/u.test(s) && !newer(c)) known.push(s);
  }
  const words = scripts.join(' ').split(' ');
  const common = [' ', ' ', ' ', '\n', '\t', '\'', 's', 'S', 't', 'e', 'a', 'Z', '1', '9', '.', '!', '\r', 're', '\'ll', '  '];
  for (let n = 0; n < strings; ++n) {
    let text = '';
    for (let length = 1 + random(40); length > 0; --length) {
      const kind = random(10);
      text += kind < 4 ? pick(common) : kind < 7 ? pick(words) : kind < 9 ? pick(known) : String.fromCharCode(random(256));
    }
    texts.push(text);
  }
  return texts;
}
// Assigned in Unicode 15 and later, which libraries of other years class as they like.
function newer(c) {
  return newerRanges.some(([a, b]) => c >= a && c <= b);
}
const newerRanges = [[0xcf3, 0xcf3], [0xece, 0xece], [0x10efd, 0x10eff], [0x1123f, 0x11241], [0x11b00, 0x11b09], [0x11f00, 0x11f59], [0x1342f, 0x1342f],
  [0x13439, 0x13455], [0x1b132, 0x1b132], [0x1b155, 0x1b155], [0x1d2c0, 0x1d2d3], [0x1df25, 0x1df2a], [0x1e030, 0x1e08f], [0x1e4d0, 0x1e4f9],
  [0x1f6dc, 0x1f6dc], [0x1f774, 0x1f776], [0x1f77b, 0x1f77f], [0x1f7d9, 0x1f7d9], [0x1fa75, 0x1fa77], [0x1fa87, 0x1fa88], [0x1faad, 0x1faaf],
  [0x1fabb, 0x1fabd], [0x1fabf, 0x1fabf], [0x1face, 0x1facf], [0x1fada, 0x1fadb], [0x1fae8, 0x1fae8], [0x1faf7, 0x1faf8], [0x2ffc, 0x2fff], [0x31ef, 0x31ef],
  [0x2ebf0, 0x2ee5d], [0x31350, 0x323af], [0x897, 0x897], [0x1c89, 0x1c8a], [0xa7cb, 0xa7cf], [0xa7d2, 0xa7d4], [0xa7da, 0xa7f1], [0x10500, 0x1052f],
  [0x105c0, 0x105f3], [0x10940, 0x1095f], [0x10d40, 0x10d8f], [0x10ec2, 0x10ec7], [0x10ed0, 0x10ed8], [0x10efa, 0x10efc], [0x11380, 0x113e2],
  [0x116d0, 0x116e3], [0x11b60, 0x11b67], [0x11bc0, 0x11bf9], [0x11db0, 0x11df0], [0x11f5a, 0x11f5a], [0x13460, 0x143fa], [0x16100, 0x16139],
  [0x16d40, 0x16d79], [0x16ea0, 0x16ed3], [0x16ff2, 0x16ff6], [0x187f8, 0x187ff], [0x18cff, 0x18cff], [0x18d09, 0x18d1e], [0x18d80, 0x18df2],
  [0x1cc00, 0x1cefc], [0x1e5d0, 0x1e6ff], [0x1f6d8, 0x1f6d8], [0x1f777, 0x1f77a], [0x1f8b2, 0x1f8bb], [0x1f8c0, 0x1f8d8], [0x1fa54, 0x1fa57],
  [0x1fa89, 0x1fa8f], [0x1fabe, 0x1fabe], [0x1fac6, 0x1fac8], [0x1facd, 0x1facd], [0x1fadc, 0x1fadf], [0x1fae9, 0x1faea], [0x1faef, 0x1faef],
  [0x1fbcb, 0x1fbef], [0x1fbfa, 0x1fbfa], [0x88f, 0x88f], [0xc5c, 0xc5c], [0xcdc, 0xcdc], [0x1acf, 0x1aeb], [0x20c1, 0x20c1], [0x2b96, 0x2b96]];

// ---- the originals, and their vocabularies as files

const kLlama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const kQwen2 = kLlama3.replace('{1,3}', '');
const byteLevel = {type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false};
const write = (name, value) => {
  const file = path.join(files, name);
  fs.writeFileSync(file, typeof value === 'string' ? value : JSON.stringify(value));
  return file;
};
const added = (content, id, special = true) => ({id, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special});
function bpeFile({vocab, merges, tokens, normalizer = null, pre = null, decoder, model = {}, post = null}) {
  return {version: '1.0', truncation: null, padding: null, added_tokens: tokens, normalizer, pre_tokenizer: pre, post_processor: post, decoder,
    model: {type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: null, end_of_word_suffix: null, fuse_unk: false,
      byte_fallback: false, ignore_merges: false, vocab, merges, ...model}};
}
// Llama 2's and Mistral's packages hold the vocabulary, and merges as pairs of ids.
function sentencePieceFile(t) {
  const vocab = Object.fromEntries(t.vocabById.map((token, id) => [token, id]));
  const merges = [...t.merges.entries()].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
  return bpeFile({vocab, merges, tokens: ['<unk>', '<s>', '</s>'].map((s) => added(s, vocab[s])),
    normalizer: {type: 'Sequence', normalizers: [{type: 'Prepend', prepend: '▁'}, {type: 'Replace', pattern: {String: ' '}, content: '▁'}]},
    decoder: {type: 'Sequence', decoders: [{type: 'Replace', pattern: {String: '▁'}, content: ' '}, {type: 'ByteFallback'}, {type: 'Fuse'},
      {type: 'Strip', content: ' ', start: 1, stop: 0}]},
    post: {type: 'TemplateProcessing', single: [{SpecialToken: {id: '<s>', type_id: 0}}, {Sequence: {id: 'A', type_id: 0}}],
      pair: [{Sequence: {id: 'A', type_id: 0}}, {Sequence: {id: 'B', type_id: 0}}], special_tokens: {'<s>': {id: '<s>', ids: [1], tokens: ['<s>']}}},
    model: {unk_token: '<unk>', fuse_unk: true, byte_fallback: true}});
}

async function originals() {
  const {Tiktoken} = require('tiktoken');
  const {Tokenizer} = require('tokenizers');
  const library = (file) => {
    const t = Tokenizer.fromFile(file);
    return async (text) => Array.from((await t.encode(text, null, {addSpecialTokens: false})).getIds());
  };
  const all = [];
  for (const name of ['gpt2', 'cl100k_base', 'o200k_base']) {
    const {bpe_ranks, special_tokens, pat_str} = require(`tiktoken/encoders/${name}.json`);
    const t = new Tiktoken(bpe_ranks, special_tokens, pat_str);
    // "! 0 IQ== Ig== ..." is a run of ranks from 0 on.
    let ranks = '';
    for (const line of bpe_ranks.split('\n').filter((l) => l)) {
      const [, first, ...tokens] = line.split(' ');
      tokens.forEach((token, i) => { ranks += `${token} ${Number(first) + i}\n`; });
    }
    const file = write(`${name}.tiktoken`, ranks);
    all.push({name: `${name} by tiktoken`, file, ids: async (text) => Array.from(t.encode_ordinary(text))});
  }
  const {LlamaTokenizer} = await load('llama-tokenizer-js/llama-tokenizer.js');
  const llama2 = new LlamaTokenizer();
  const llama2File = write('llama2.json', sentencePieceFile(llama2));
  all.push({name: 'llama 2 by llama-tokenizer-js', file: llama2File, ids: async (text) => llama2.encode(text, false, true)});
  all.push({name: 'llama 2 by tokenizers', file: llama2File, ids: library(llama2File), specials: true});
  const mistral = (await load('mistral-tokenizer-js/mistral-tokenizer.js')).default;
  const mistralFile = write('mistral.json', sentencePieceFile(mistral));
  all.push({name: 'mistral by mistral-tokenizer-js', file: mistralFile, ids: async (text) => mistral.encode(text, false, true)});
  all.push({name: 'mistral by tokenizers', file: mistralFile, ids: library(mistralFile), specials: true});

  const {default: llama3} = await load('llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js');
  const plain = llama3.vocabById.slice(0, 128000);
  const vocab = Object.fromEntries(plain.map((token, id) => [token, id]));
  const merges = [...llama3.merges.entries()].sort((a, b) => a[1] - b[1]).map(([pair]) => pair);
  const regex = (pattern) => ({type: 'Sequence', pretokenizers: [
    {type: 'Split', pattern: {Regex: pattern}, behavior: 'Isolated', invert: false}, byteLevel]});
  const llama3File = write('llama3.json', bpeFile({vocab, merges, pre: regex(kLlama3), decoder: byteLevel, model: {ignore_merges: true},
    tokens: llama3.vocabById.slice(128000).map((token, i) => added(token, 128000 + i))}));
  // JavaScript's \\s has U+FEFF and lacks U+0085, unlike Unicode's white space.
  all.push({name: 'llama 3 by llama3-tokenizer-js', file: llama3File, specials: true, skips: (text) => /[\u0085\ufeff]/.test(text), ids: async (text) => llama3.encode(text, {bos: false, eos: false})});
  all.push({name: 'llama 3 by tokenizers', file: llama3File, specials: true, ids: library(llama3File)});
  // Qwen's pattern and normalizer, with Llama 3's merges; one added token that is no special one.
  const qwenFile = write('qwen_like.json', bpeFile({vocab, merges, pre: regex(kQwen2), normalizer: {type: 'NFC'}, decoder: byteLevel,
    tokens: [added('<|endoftext|>', 128000), added('<|im_start|>', 128001), added('<tool_call>', 128002, false)]}));
  all.push({name: "qwen's pattern by tokenizers", file: qwenFile, specials: true, ids: library(qwenFile)});
  return all;
}

// ---- the comparison

function adjointIds(file, texts, specials) {
  const input = texts.map((t) => JSON.stringify(t)).join('\n') + '\n';
  const out = execFileSync(adjoint, ['tokenizer', 'encode', '--tokenizer', file, '--json', ...(specials ? ['--specials'] : [])],
    {input, maxBuffer: 1 << 30, encoding: 'utf8'});
  return out.trimEnd().split('\n').map((line) => JSON.parse(line));
}

const texts = corpus(Number(option('--strings', '10000'))).map((t) => t.toWellFormed?.() ?? t);
let wrong = 0;
const expected = {};
for (const {name, file, ids, specials, skips} of await originals()) {
  const ours = adjointIds(file, texts, specials);
  let differ = 0, total = 0;
  for (let i = 0; i < texts.length; ++i) {
    if (skips?.(texts[i])) continue;
    const theirs = await ids(texts[i]);
    total += theirs.length;
    if (JSON.stringify(theirs) === JSON.stringify(ours[i])) continue;
    if (++differ <= 3) {
      const at = theirs.findIndex((id, k) => id !== ours[i][k]);
      console.log(`  ${JSON.stringify(texts[i]).slice(0, 200)}\n    theirs ${theirs.slice(Math.max(0, at - 1), at + 6)}\n    ours   ${ours[i].slice(Math.max(0, at - 1), at + 6)}`);
    }
  }
  console.log(`${name}: ${texts.length} texts, ${total} ids, ${differ} texts differ`);
  wrong += differ;
  expected[name] = scripts.map((_, i) => ours[i + 1]);
}

// Small tokenizers, which the tests hold whole, with the ids that the tokenizers library gives.
async function smallOnes() {
  const {Tokenizer} = require('tokenizers');
  const text = write('scripts.txt', (scripts.join('\n') + '\n').repeat(4));
  const small = {};
  for (const pattern of ['gpt2', 'llama3', 'qwen2']) {
    const file = path.join(files, `small_${pattern}.json`);
    execFileSync(adjoint, ['tokenizer', 'train', '--data', text, '--out', file, '--vocab', '600', '--pattern', pattern], {stdio: 'ignore'});
    small[`small ${pattern}`] = JSON.parse(fs.readFileSync(file, 'utf8'));
  }
  small['small qwen2'].normalizer = {type: 'NFC'};
  const marked = structuredClone(small['small gpt2']);  // characters for symbols, and blanks as marks
  const vocab = {'<unk>': 0, '▁': 1};
  for (const c of 'abcdefghijklmnopqrstuvwxyz.,é我') vocab[c] = Object.keys(vocab).length;
  const merges = ['t h', 'th e', '▁ the', '▁ a', 'o f'];
  for (const merge of merges) vocab[merge.replace(' ', '')] = Object.keys(vocab).length;
  marked.model = {...marked.model, vocab, merges, unk_token: '<unk>', fuse_unk: true};
  marked.added_tokens = [added('<unk>', 0)];
  marked.pre_tokenizer = {type: 'Metaspace', replacement: '▁', prepend_scheme: 'first', split: true};
  marked.decoder = {...marked.pre_tokenizer};
  marked.post_processor = null;
  small['small metaspace'] = marked;
  for (const [name, file] of Object.entries(small)) {
    const t = Tokenizer.fromString(JSON.stringify(file));
    expected[name] = [];
    for (const one of scripts) expected[name].push(Array.from((await t.encode(one, null, {addSpecialTokens: false})).getIds()));
  }
  return small;
}
if (option('--expected')) {
  const small = await smallOnes();
  fs.writeFileSync(option('--expected'), JSON.stringify({texts: scripts, small, ids: expected}) + '\n');
}
process.exit(wrong ? 1 : 0);
