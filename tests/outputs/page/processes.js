// Answers of the agent to requests for processes.
(() => {
  const rows = [
    {
      pid: 41, comm: "python3", user: "alice", uid: 1000, threads: 8, state: "R", cpu: 2.5, memory: 1 << 30,
      read: 0, write: 2 << 20, gpu_memory: 2 ** 31, cgroup: "/user.slice", job: "48213",
      started: Date.now() / 1000 - 90, command: "/usr/bin/python3 train.py --token=****",
    },
    {
      pid: 42, comm: "postgres", user: "alice", uid: 1000, threads: 1, state: "S", cpu: 0.5, memory: 4 * 2 ** 30,
      read: null, write: null, gpu_memory: null, cgroup: "/user.slice", job: null,
      started: Date.now() / 1000 - 3600, command: null,
    },
    {
      pid: 1, comm: "systemd", user: "root", uid: 0, threads: 1, state: "S", cpu: 0, memory: 1 << 24,
      read: 0, write: 0, gpu_memory: null, cgroup: "/init.scope", job: null,
      started: Date.now() / 1000 - 86400, command: null,
    },
  ];
  const users = [
    { user: "alice", processes: 2, cpu: 3, memory: 5 * 2 ** 30, read: 0, write: 2 << 20, gpu_memory: 2 ** 31, threads: 9 },
    { user: "root", processes: 1, cpu: 0, memory: 1 << 24, read: 0, write: 0, gpu_memory: null, threads: 1 },
  ];
  const real = window.fetch;
  window.fetch = async (address, ...rest) => {
    const url = new URL(address, document.baseURI);
    if (!url.pathname.endsWith("/api/v1/processes")) return real(address, ...rest);
    const [by, sort] = [url.searchParams.get("by"), url.searchParams.get("sort")];
    const answer = (by === "user" ? users : rows).toSorted((a, b) => (b[sort] ?? 0) - (a[sort] ?? 0));
    if (by === "job") {
      const message = "the agent does not collect processes";
      const error = { message, hint: "set collectors.top_processes.enabled" };
      return new Response(JSON.stringify({ error }), { status: 404 });
    }
    return new Response(
      JSON.stringify({ time: Date.now(), interval: 5, by, total: answer.length, rows: answer }),
    );
  };
})();
