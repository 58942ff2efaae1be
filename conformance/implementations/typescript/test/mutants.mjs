// mutants changes the implementation in one place at a time and lists the changes that nothing notices.
//
//     node test/mutants.mjs            a hundred changes of the decision and its URLs, judged by the vectors
//     node test/mutants.mjs all        every change of them
//     node test/mutants.mjs client     the changes of the client in CLIENT, judged by its tests
//     node test/mutants.mjs NAME…      the changes whose names contain a NAME
//
// It needs the packages of package-lock.json.

import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isDeepStrictEqual, promisify } from "node:util";

import ts from "typescript";

const FOLDER = fileURLToPath(new URL("..", import.meta.url));
const VECTORS = process.env.VECTORS ?? join(FOLDER, "../../vectors");
const SOURCES = ["decide.ts", "url.ts"];

/** EQUIVALENT has the changes that no vector can notice, by the reason. */
const EQUIVALENT = [
  ["Without the code the phase decides, and the class is the same.", ["a broken head is a reset (N10)"]],
  ["The request would be refused: it has allow_non_idempotent without a key, or a status in both lists (section 12).", [
    `contextOf: ample/"; const repeatable = Boolean(retry.idempotency_key) && retry.allow_non_idem => ample/"; const repeatable = retry.allow_non_idem`,
    'statusIsAdded: eturn c.additional.has(status) && !c.excluded.has(status); } function failur => eturn c.additional.has(status); } function failur',
  ]],
  ["No two of these conditions can hold at once, so their order means nothing.", [
    `classify: eturn failureOf(limit); if (hasBody) { // 7 const bodyFaults = new Set(c.failures); if (!e => eturn failureOf(limit); if (target.kind === "follow") return { kind: "follow", redirect: t`,
    `classify: RECT_FAULTS, faults); if (target.kind === "faulty" && fault === target.fault) return { ... => RECT_FAULTS, faults); if (fault === "too_many_redirects" || fault === "redirect_loop") ret`,
    `meaningOf: nd | undefined { if (status >= 500 && status <= 599) return statusFailure("http_server_err => nd | undefined { if (status === 429) return statusFailure("rate_limited"); if (status >= 5`,
    `meaningOf: er_error"); if (status === 429) return statusFailure("rate_limited"); if (status === 401)  => er_error"); if (status === 401) return statusFailure("auth_required"); if (status === 429)`,
    `meaningOf: limited"); if (status === 401) return statusFailure("auth_required"); if (status === 403)  => limited"); if (status === 403) return statusFailure("forbidden"); if (status === 401) retu`,
    `meaningOf: re("forbidden"); if (status >= 400 && status <= 499) { const cls = status === 408 ? "reque => re("forbidden"); if (status === 304) { return c.conditional ? { kind: "end", outcome: "not`,
    `meaningOf: "H10" : undefined); } if (status === 304) { return c.conditional ? { kind: "end", outcome: => "H10" : undefined); } if (target.kind === "not_followed") return { kind: "end", outcome: "`,
    `typeOf:  string): FailureType { if (rule === "H10") return "transient"; // N5: a request that has  =>  string): FailureType { if (cls === "tls_handshake") { return c.retryTlsHandshake || c.pro`,
    `redirectTarget: cted", reason }); // R3 if (!from || !url) return rejected("location_malformed"); if (type => cted", reason }); // R3 if (typeof url === "string") return rejected(url); if (!from || !u`,
    `methodAfter: thod: string): string { if (status === 303) return method === "HEAD" ? "HEAD" : "GET"; if  => thod: string): string { if ((status === 301 || status === 302) && method === "POST") retur`,
    `retryAfter: sponse, "Retry-After"); if (value === undefined) return undefined; if (/^[0-9]+$/.test(val => sponse, "Retry-After"); if (/^[0-9]+$/.test(value)) return saturate(BigInt(value) * SECOND`,
    `decide: ify(c); if (found.kind === "follow") return { redirect: found.redirect }; if (found.kind = => ify(c); if (found.kind === "end") { return { outcome: found.outcome, decision: { rule: fou`,
    'decide: ound.class, type), }; if (wanted !== undefined) failure.retry_after = formatDuration(wante => ound.class, type), }; if (found.reason !== undefined) failure.reason = found.reason; if (w',
    `decisionAfter:  undefined): Decision { if (STOPPING.has(failure.class)) return { rule: failure.rule, stop =>  undefined): Decision { if (failure.class === "deadline") return { rule: failure.rule, sto`,
    'split: eference | undefined { if (/[\\u0000-\\u001f\\u007f]/.test(text)) return undefined; if (/%(?! => eference | undefined { if (/%(?![0-9A-Fa-f]{2})/.test(text)) return undefined; if (/[\\u000',
    `compose: rn "location_host"; if (m[1] === "") return "location_relative"; if (m[1]?.startsWith("[") => rn "location_host"; if (m[1]?.startsWith("[") && m[1].includes("%")) return "location_zone`,
    `compose:  asciiHost(m[1] ?? ""); if (host === undefined) return "location_host"; if (isNumberLike(h =>  asciiHost(m[1] ?? ""); if (isNumberLike(host)) return "location_number_like_host"; if (ho`,
  ]],
  ["An earlier condition has dealt with the difference.", [
    'meaningOf: f (status >= 400 && status <= 499) { const cls =  => f (status >= 400 && status <= 500) { const cls = ',
    'meaningOf:  if (status >= 200 && status <= 399) return undefin =>  if (status >= 200 && status < 399) return undefin',
    'meaningOf: f (status >= 200 && status <= 399) return undefined;  => f (status >= 200 && status <= 400) return undefined; ',
    'isSuccess: r): boolean { return status >= 200 && status <= 299; } /** conte => r): boolean { return status <= 299; } /** conte',
    'isSuccess: rn status >= 200 && status <= 299; } /** contentType => rn status >= 200 && status <= 300; } /** contentType',
  ]],
  ["Several reasons apply to this Location, and none comes first (D8).", [
    `redirectTarget: r(status, c.hopMethod); if (url.userinfo !== undefined) return rejected("location_userinfo => r(status, c.hopMethod); if (c.forbidDowngrade && from.scheme === "https" && url.scheme ===`,
    `compose: location_relative"; if (m[1]?.startsWith("[") && m[1].includes("%")) retu => location_relative"; if (m[1].includes("%")) retu`,
  ]],
  ["URLs of an observation are usable, so this is for the type checker.", [
    'redirectTarget: eUrl(c.hopUrl); const url = from && resolve(from, locati => eUrl(c.hopUrl); const url = resolve(from, locati',
    `redirectTarget: cted", reason }); // R3 if (!from || !url) return rejected("l => cted", reason }); // R3 if (false) return rejected("l`,
    'redirectTarget:  reason }); // R3 if (!from || !url) return reject =>  reason }); // R3 if (!from && !url) return reject',
    `redirectTarget: , reason }); // R3 if (!from || !url) return rejected("l => , reason }); // R3 if (!from) return rejected("l`,
    `redirectTarget: ted", reason }); // R3 if (!from || !url) return rejected => ted", reason }); // R3 if (!url) return rejected`,
    'parseUrl:  = split(text); const url = reference && compose(reference);  =>  = split(text); const url = compose(reference); ',
    `parseUrl:  compose(reference); return typeof url === "string" ? undefined : url; } /** resolve  =>  compose(reference); return url; } /** resolve `,
    'split: :#(.*))?$/s.exec(text); if (!m) return undefined;  => :#(.*))?$/s.exec(text); if (false) return undefined; ',
    `compose: Unusable { if (r.scheme !== undefined && r.scheme !== "http" && r.scheme ! => Unusable { if (r.scheme !== "http" && r.scheme !`,
    `compose: rn "location_scheme"; if (r.scheme === undefined || r.authority === undefi => rn "location_scheme"; if (r.authority === undefi`,
  ]],
  ["A delay of 0 stays 0, and no multiplier of a request grows to infinity (section 12).", [
    'backoff: let delay = c.maxDelay; if (c.baseDelay === 0n) delay = 0n; // 0 t => let delay = c.maxDelay; if (false) delay = 0n; // 0 t',
  ]],
  ["Both branches give the same at the limit.", [
    'backoff: s no number else if (grown < Number(c.maxDelay)) => s no number else if (grown <= Number(c.maxDelay))',
    'saturate: igint { return nanoseconds > MAX_DURATION ? MAX_ => igint { return nanoseconds >= MAX_DURATION ? MAX_',
  ]],
  ["undefined is no date and no number, and compares as false.", [
    `retryAfter: sponse, "Retry-After"); if (value === undefined) return undefined;  => sponse, "Retry-After"); if (false) return undefined; `,
    `retryAfter: "Date"); const reference = (sent === undefined ? undefined : parseHttpDate(sent,  => "Date"); const reference = (parseHttpDate(sent, `,
    `decisionAfter: .failures.has("deadline") || (c.timeLeft !== undefined && delay >= c.timeLeft) => .failures.has("deadline") || (delay >= c.timeLeft)`,
    'parseHttpDate: ate = at(year); return date !== undefined && date > BigInt(limit.getTi => ate = at(year); return date > BigInt(limit.getTi',
    'asciiHost: _-]{1,63}"; const isName = name !== undefined && new RegExp(`^${label} => _-]{1,63}"; const isName = new RegExp(`^${label}',
  ]],
  ["Only differences of times count.", [
    'timestamp: ned { const date = new Date(0); date.setUTCFull => ned { const date = new Date(1); date.setUTCFull',
  ]],
  ["A day that does not exist is in another month.", [
    'timestamp:  date.getUTCMonth() === month && date.getUTCDate() = =>  date.getUTCMonth() === month || date.getUTCDate() =',
    'timestamp: = date.getUTCMonth() === month && date.getUTCDate() === day; if (!exists || h => = date.getUTCMonth() === month; if (!exists || h',
    'timestamp: ; const exists = date.getUTCMonth() === month && date.getUTCDate() === day; if => ; const exists = date.getUTCDate() === day; if',
  ]],
  ["Times and durations of an observation are valid, with at most nine decimals.", [
    'parseTimestamp: 39.exec(text); const base = m && timestamp(Number(m[1 => 39.exec(text); const base = timestamp(Number(m[1',
    'parseTimestamp: r(m[5]), Number(m[6])); if (!m || base === undefined || base === null) throw new Error(`n => r(m[5]), Number(m[6])); if (false) throw new Error(`n',
    'parseTimestamp:  if (!m || base === undefined || base === null) thro =>  if (!m || base === undefined && base === null) thro',
    'parseTimestamp:  if (!m || base === undefined || base === null) throw new Error(`n =>  if (!m || base === undefined) throw new Error(`n',
    'parseTimestamp: r(m[5]), Number(m[6])); if (!m || base === undefined || base === null) throw => r(m[5]), Number(m[6])); if (base === null) throw',
    'parseTimestamp: [5]), Number(m[6])); if (!m || base === undefined  => [5]), Number(m[6])); if (!m && base === undefined ',
    'parseTimestamp: (m[6])); if (!m || base === undefined || base === null) throw new Erro => (m[6])); if (!m || base === null) throw new Erro',
    'parseTimestamp: r(m[5]), Number(m[6])); if (!m || base === undefined | => r(m[5]), Number(m[6])); if (base === undefined |',
    `parseTimestamp:  BigInt((m[7] ?? "").slice(0, 9).padEnd(9, "0"));  =>  BigInt((m[7] ?? "").slice(0, 10).padEnd(9, "0")); `,
    'parseDuration: {1,9}))?s$/.exec(text); if (!m) throw new Error(`n => {1,9}))?s$/.exec(text); if (false) throw new Error(`n',
  ]],
  ["The slash that is dropped here is added again.", [
    'resolve:  path = base.path.slice(0, base.path.lastInde =>  path = base.path.slice(1, base.path.lastInde',
  ]],
  ["A URL with userinfo is never followed (R3), and its text is not compared.", [
    'compose: undefined : r.authority.slice(0, at); const m = / => undefined : r.authority.slice(1, at); const m = /',
    'compose: n_port"; const authority = (userinfo === undefined ? "" : `${userinfo}@`) + host + (m[2] ? => n_port"; const authority = ("") + host + (m[2] ? `',
  ]],
];

/** CLIENT has changes of client.ts: the name, the text, and what replaces it. */
const CLIENT = [
  ["no wait before a retry (W1)", "await sleep(verdict.decision.retry.delay);", ""],
  ["waits are a thousand times too short (W1)", "/ 1e6", "/ 1e9"],
  ["fields with the same name are joined (W2)", "inFlight.fields ?? [...response.headers]", "[...response.headers]"],
  ["15 interim responses (section 12)", "MAX_INFORMATIONAL = 16", "MAX_INFORMATIONAL = 15"],
  ["17 interim responses (section 12)", "MAX_INFORMATIONAL = 16", "MAX_INFORMATIONAL = 17"],
  ["any number of interim responses (section 12)", "if (tooMany ||", "if ("],
  ["a head of 16 KiB (section 12)", "MAX_HEAD = 64", "MAX_HEAD = 16"],
  ["redirects are followed by fetch (D1)", `redirect: "manual"`, `redirect: "follow"`],
  ["redirects are not counted (R1)", "if (seen.length > 1) observation.redirects", "if (false) observation.redirects"],
  ["one redirect is not counted (R1)", "seen.length - 1;", "seen.length - 2;"],
  ["a Location is resolved against the first URL (D8)", "hop_url: url,", "hop_url: first,"],
  ["loops are not noticed (R2)", "&& seen.some(", "&& [].some("],
  ["the body of a redirect is written (H9)", "if (response.status < 200 || response.status > 299) {", "if (response.status > 399) {"],
  ["a coding that fetch does not know is passed on (C3)", "if (response.body && !isDecoded", "if (false && !isDecoded"],
  ["several codings are tried (C3)", ".includes(codings);", `.includes(codings.split(",")[0]) || codings.includes(",");`],
  ["a connection that closes is no reset (N4)", `? "connection_reset" : "protocol"`, `? "protocol" : "protocol"`],
  ["a broken head is a reset (N10)", `if (phase !== "body" && (code`, `if (false && (code`],
  ["a broken chunk is N10 (N8)", `if (phase !== "body" && (code`, "if ((code"],
  ["a body that breaks is complete (N8)", `if (phase === "body") return "body_interrupted";`, `if (phase === "body") return "undecodable";`],
  ["the last failure exits with 0", "return 1;\n  }\n}\n\ninterface", "return 0;\n  }\n}\n\ninterface"],
];

const OTHER = {
  "<": "<=", "<=": "<", ">": ">=", ">=": ">", "===": "!==", "!==": "===", "&&": "||", "||": "&&", "+": "-", "-": "+",
};

/** changes yields the changes of a node, each as the first and the last position, and the text between them. */
function* changes(node, text) {
  const of = (n) => text.slice(n.getStart(), n.end);
  const swap = (a, b) => [a.getStart(), b.end, of(b) + text.slice(a.end, b.getStart()) + of(a)];
  if (ts.isNumericLiteral(node)) yield [node.getStart(), node.end, String(Number(node.text) + 1)];
  if (ts.isBigIntLiteral(node)) yield [node.getStart(), node.end, `${BigInt(of(node).slice(0, -1).replaceAll("_", "")) + 1n}n`];
  if (ts.isStringLiteral(node) && /^[0-9.]+s$/.test(node.text)) yield [node.getStart(), node.end, `"1${node.text}"`];
  if (node.kind === ts.SyntaxKind.TrueKeyword) yield [node.getStart(), node.end, "false"];
  if (node.kind === ts.SyntaxKind.FalseKeyword) yield [node.getStart(), node.end, "true"];
  if (ts.isBinaryExpression(node)) {
    const operator = node.operatorToken;
    const texts = [node.left, node.right].some((n) => ts.isStringLiteral(n) || ts.isTemplateExpression(n) || ts.isParenthesizedExpression(n) && operator.kind === ts.SyntaxKind.PlusToken);
    const other = OTHER[operator.getText()];
    if (other && !(operator.getText() === "+" && texts)) yield [operator.getStart(), operator.end, other];
    if (["&&", "||"].includes(operator.getText())) yield [node.getStart(), node.end, of(node.left)];
    if (["&&", "||", "??"].includes(operator.getText())) yield [node.getStart(), node.end, of(node.right)];
  }
  if (ts.isIfStatement(node)) yield [node.expression.getStart(), node.expression.end, "false"]; // a rule is left out
  if (ts.isConditionalExpression(node)) {
    yield [node.getStart(), node.end, of(node.whenTrue)];
    yield [node.getStart(), node.end, of(node.whenFalse)];
  }
  if (ts.isCaseClause(node)) yield [node.expression.getStart(), node.expression.end, `"no case"`];
  if (ts.isArrayLiteralExpression(node) && node.elements.length > 1 && !ts.isPropertyAssignment(node.parent)) {
    const list = node.elements.every(ts.isLiteralExpression) ? node.elements : [];
    for (let i = 0; i < list.length; i++) {
      yield i > 0 ? [list[i - 1].end, list[i].end, ""] : [list[0].getStart(), list[1].getStart(), ""];
      if (i > 0 && ts.isVariableDeclaration(node.parent)) yield swap(list[i - 1], list[i]); // else its order means nothing
    }
  }
  const statements = ts.isBlock(node) ? node.statements : [];
  for (let i = 1; i < statements.length; i++) {
    if (ts.isIfStatement(statements[i - 1]) && ts.isIfStatement(statements[i])) yield swap(statements[i - 1], statements[i]);
  }
}

/** mutants returns the changes of the functions and tables of a source. */
function mutants(file) {
  const text = readFileSync(join(FOLDER, "src", file), "utf8");
  const source = ts.createSourceFile(file, text, ts.ScriptTarget.ES2022, true);
  const found = [];
  const seen = new Map();
  for (const top of source.statements) {
    const name = top.name?.text ?? top.declarationList?.declarations[0].name.getText();
    if (name === "sameRequestUrl") continue; // only the client needs it
    if (!name || ts.isInterfaceDeclaration(top) || ts.isTypeAliasDeclaration(top)) continue;
    const visit = (node) => {
      for (const [from, to, now] of ts.isTypeNode(node) ? [] : changes(node, text)) {
        const changed = text.slice(0, from) + now + text.slice(to);
        let key = `${name}: ${difference(text, changed)}`;
        seen.set(key, (seen.get(key) ?? 0) + 1);
        if (seen.get(key) > 1) key += ` (${seen.get(key)})`;
        const { line } = source.getLineAndCharacterOfPosition(from);
        found.push({ file, line: line + 1, name: key, text: changed });
      }
      if (!ts.isTypeNode(node)) ts.forEachChild(node, visit);
    };
    ts.forEachChild(top, visit);
  }
  return found;
}

/** difference describes what differs, with a few words around it. */
function difference(before, after) {
  let start = 0;
  while (before[start] === after[start]) start++;
  let end = 0;
  while (end < Math.min(before.length, after.length) - start && before.at(-1 - end) === after.at(-1 - end)) end++;
  const short = (text) => text.slice(Math.max(0, start - 30), text.length - Math.max(0, end - 20)).replace(/\s+/g, " ").slice(0, 90);
  return `${short(before)} => ${short(after)}`;
}

/** build writes the program into a folder, with one source replaced. */
function build(folder, mutant) {
  mkdirSync(join(folder, "src"), { recursive: true });
  mkdirSync(join(folder, "test"));
  writeFileSync(join(folder, "package.json"), `{"type": "module"}`);
  const files = ["src/decide.ts", "src/url.ts", "src/client.ts", "test/client.test.ts"];
  for (const file of files) {
    const text = file === `src/${mutant?.file}` ? mutant.text : readFileSync(join(FOLDER, file), "utf8");
    const { outputText } = ts.transpileModule(text, { compilerOptions: { target: "ES2022", module: "ES2022" } });
    writeFileSync(join(folder, file.replace(/ts$/, "js")), outputText);
  }
}

/** noticed reports whether a vector fails, or the program cannot be used. */
async function noticed(folder, cases) {
  try {
    const { decide } = await import(pathToFileURL(join(folder, "src/decide.js")));
    return cases.some(({ observation, verdict }) => {
      const got = decide(observation);
      if (!verdict.failure?.reason) delete got.failure?.reason; // as in vectors.test.ts
      return !isDeepStrictEqual(got, verdict);
    });
  } catch {
    return true;
  }
}

/** testsNotice reports whether a test of the client fails. */
async function testsNotice(folder) {
  try {
    await promisify(execFile)(process.execPath, ["--test", join(folder, "test")], { timeout: 120_000 });
    return false;
  } catch {
    return true;
  }
}

/** sample draws from a list with a fixed seed, and keeps its order. */
function sample(list, count) {
  let state = 1;
  const next = () => (state = (state * 48_271) % 2_147_483_647);
  const drawn = list.map((value, index) => ({ value, index, at: next() })).sort((a, b) => a.at - b.at).slice(0, count);
  return drawn.sort((a, b) => a.index - b.index).map(({ value }) => value);
}

function clientMutants() {
  const text = readFileSync(join(FOLDER, "src/client.ts"), "utf8");
  return CLIENT.map(([name, was, now]) => {
    const at = text.indexOf(was);
    if (at < 0 || text.indexOf(was, at + 1) >= 0) throw new Error(`${name}: client.ts must have this once: ${was}`);
    return { file: "client.ts", line: text.slice(0, at).split("\n").length, name, text: text.replace(was, () => now) };
  });
}

async function main(args) {
  const cases = readdirSync(VECTORS).filter((name) => name.endsWith(".json"))
    .flatMap((name) => JSON.parse(readFileSync(join(VECTORS, name), "utf8")).vectors);
  const [every, client] = [SOURCES.flatMap(mutants), clientMutants()];
  let chosen = [...every, ...client].filter(({ name }) => args.some((part) => name.includes(part)));
  if (args.length === 0) chosen = sample(every, 100);
  if (args[0] === "all") chosen = every;
  if (args[0] === "client") chosen = client;

  const folder = mkdtempSync(join(tmpdir(), "mutants-"));
  const reasons = new Map(EQUIVALENT.flatMap(([why, names]) => names.map((name) => [name, why])));
  let [equivalent, missed] = [0, 0];
  try {
    for (const [i, mutant] of [undefined, ...chosen].entries()) {
      const into = join(folder, String(i));
      build(into, mutant);
      const judge = mutant?.file === "client.ts" ? testsNotice : noticed;
      const found = await judge(into, cases);
      if (mutant === undefined) {
        if (found) throw new Error("a vector fails without a change");
        continue;
      }
      const why = reasons.get(mutant.name);
      if (found && why) throw new Error(`${mutant.name}: listed as equivalent, but it is noticed`);
      if (found) continue;
      console.log(`${mutant.file}:${mutant.line}: ${mutant.name}\n    ${why ?? "nothing notices it"}`);
      if (why) equivalent++;
      else missed++;
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
  console.log(`${chosen.length} of ${every.length} changes of the decision and ${client.length} of the client: `
    + `${chosen.length - equivalent - missed} noticed, ${equivalent} equivalent, ${missed} not noticed`);
  return missed > 0 ? 1 : 0;
}

process.exitCode = await main(process.argv.slice(2));
