// Graphile Worker under measurement: node graphile_worker.mjs FOLDER enqueue JOBS PAYLOAD, or node graphile_worker.mjs FOLDER work.
// FOLDER holds node_modules, DATABASE_URL names the database. `work` speaks the protocol of bench/worker_process.py.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, verb, jobs, payload] = process.argv.slice(2);
const { Logger, makeWorkerUtils, run } = createRequire(`${folder}/package.json`)("graphile-worker");
const connectionString = process.env.DATABASE_URL;
const logger = new Logger(() => (level, message) => {
  if (level === "error") console.error(message);
});

if (verb === "enqueue") {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  const one = { identifier: "discard", payload: JSON.parse(payload) };
  for (let left = Number(jobs); left > 0; left -= 1000) {
    await utils.addJobs(Array(Math.min(left, 1000)).fill(one));
  }
  await utils.release();
} else {
  const line = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  let ran = 0, began = 0n, cpuAtFirst;
  const discard = () => {
    if (ran === 0) {
      began = process.hrtime.bigint(); // the clock of Python's time.monotonic_ns()
      cpuAtFirst = process.cpuUsage();
    }
    ran += 1;
    if (ran === 1 || ran % 100 === 0) console.log(ran);
  };
  console.log("ready");
  await line.next();
  const runner = await run({
    preset: {
      worker: {
        connectionString, logger, concurrentJobs: 24, maxPoolSize: 12, localQueue: { size: 500 },
        completeJobBatchDelay: 0, failJobBatchDelay: 0,
      },
    },
    noHandleSignals: true,
    taskList: { discard },
  });
  await line.next();
  const { user, system } = process.cpuUsage(cpuAtFirst);
  await runner.stop();
  console.log(JSON.stringify({ ran, began: Number(began), cpu: (user + system) / 1e6, pickups: [] }));
  process.exit(0);
}
