// A reporter for node --test: a line for each test that has no tests within it.
export default async function* reporter(events) {
  for await (const { type, data } of events) {
    if (type === "test:pass" && data.details?.type !== "suite" && !data.skip && !data.todo) yield `pass ${data.file?.replace(/.*\/test\//, "")}: ${data.name}\n`;
    if (type === "test:fail" && data.details?.error?.failureType !== "subtestsFailed") yield `fail ${data.file?.replace(/.*\/test\//, "")}: ${data.name}\n`;
  }
}
