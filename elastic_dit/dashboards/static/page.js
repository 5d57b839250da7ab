// Draws the rows that the server puts into data sources. Whatever a row says is set as text.
window.elasticDit = (() => {
  "use strict"
  const STAGES = ["encoder", "dit", "decoder"]
  const NAMES = {encoder: "encoder", dit: "DiT", decoder: "decoder"}
  const STAGE_OF = {
    queued: "encoder", encoding: "encoder", encoded: "dit", denoising: "dit",
    denoised: "decoder", decoding: "decoder",
  }
  const WAITS_FOR = {queued: "waits to encode", encoded: "waits to denoise", denoised: "waits to decode"}
  const DENSE = 16
  const STALE_MS = 5000
  const $ = (id) => document.getElementById(id)

  // ------------------------------------------------------------------------------ small things
  function node(tag, name, ...children) {
    const made = document.createElement(tag)
    if (name) made.className = name
    made.append(...children)
    return made
  }
  function say(where, text, title) {
    text = String(text)
    if (where.textContent !== text) where.textContent = text
    if (title !== undefined && where.title !== title) where.title = title
  }
  function rows(data) {
    const names = Object.keys(data)
    const length = names.length ? data[names[0]].length : 0
    return Array.from({length}, (_, i) => Object.fromEntries(names.map((name) => [name, data[name][i]])))
  }
  // Elements are kept and filled anew: a selection, a hover and the scroll position survive.
  function fill(parent, items, make, write) {
    while (parent.children.length > items.length) parent.lastElementChild.remove()
    while (parent.children.length < items.length) parent.append(make())
    items.forEach((item, i) => write(parent.children[i], item))
  }
  function widen(bar, share) {
    const width = `${Math.round(1000 * Math.min(1, Math.max(0, share))) / 10}%`
    if (bar.firstElementChild.style.width !== width) bar.firstElementChild.style.width = width
  }
  const bar = () => node("span", "bar", node("i"))
  const percent = (share) => `${Math.round(100 * share)} %`
  const clock = (at) => new Date(1000 * at).toLocaleTimeString([], {hour12: false})
  const giga = (bytes) => (bytes / 1e9).toFixed(bytes >= 1e10 ? 0 : 1)
  function span(seconds) {
    if (seconds === null || Number.isNaN(seconds)) return "–"
    if (seconds < 10) return `${seconds.toFixed(1)} s`
    if (seconds < 100) return `${seconds.toFixed(0)} s`
    const minutes = seconds / 60
    return minutes < 100 ? `${minutes.toFixed(0)} min` : `${(minutes / 60).toFixed(0)} h`
  }
  // The end of a long id tells requests apart, its beginning does not.
  const short = (id, kept = 10) => id.length > kept + 6 ? `…${id.slice(-kept)}` : id
  // 0,1,2,3,6 as 0–3, 6
  function ranges(gpus) {
    const runs = []
    for (const gpu of gpus) {
      const last = runs.at(-1)
      if (last && last[1] === gpu - 1) last[1] = gpu
      else runs.push([gpu, gpu])
    }
    return runs.map(([a, b]) => a === b ? `${a}` : b === a + 1 ? `${a}, ${b}` : `${a}–${b}`).join(", ")
  }
  function empty(card, is) {
    $(card).querySelector(".empty").hidden = !is
  }

  // ------------------------------------------------------------------------------------ panels
  const draw = {
    summary(data) {
      const [now] = rows(data)
      if (!now) return
      const busy = $("busy")
      if (!busy.firstElementChild) busy.replaceChildren(node("span"), node("small"))
      const [at_work, of] = busy.children
      at_work.style.cssText = "display:inline;color:inherit"
      say(at_work, now.busy)
      say(of, ` of ${now.gpus}`)
      say($("running"), now.running)
      say($("waiting"), now.waiting)
      say($("completed"), now.completed)
      say($("rate"), now.completed ? `completed, ${now.per_minute.toFixed(1)}/min` : "completed")
      say($("failed"), now.failed)
      $("failed").className = now.failed ? "bad" : ""
      say($("cancelled"), now.cancelled ? `failed, ${now.cancelled} cancelled` : "failed")
      say($("epoch"), now.plan_epoch ? `Plan ${now.plan_epoch}` : "No plan")
      say($("reason"), now.plan_reason || "every GPU as it is", now.plan_reason)
      say($("about"), `dispatch: ${now.dispatch}`)
    },

    ratio(data) {
      const stages = rows(data)
      const most = Math.max(1, ...stages.flatMap((s) => [s.predicted ?? 0, s.planned, s.loaded, s.working]))
      const columns = ["predicted", "planned", "loaded", "working"]
      const make = () => node("tr", "", node("td"), ...columns.map(() => node("td", "", node("b"), bar())))
      fill(document.querySelector("#ratio tbody"), stages, make, (row, stage) => {
        row.dataset.stage = stage.stage
        say(row.children[0], NAMES[stage.stage])
        columns.forEach((name, i) => {
          const [number, line] = row.children[i + 1].children
          say(number, stage[name] ?? "–")
          widen(line, (stage[name] ?? 0) / most)
        })
      })
      const known = stages.some((stage) => stage.predicted !== null)
      say($("ratio-note"), known ? `predicted ${stages.map((s) => s.predicted).join(" : ")}` :
        "no prediction yet: stage times are not known")
    },

    gpus(data) {
      const gpus = rows(data)
      const dense = gpus.length > DENSE
      $("gpus").classList.toggle("dense", dense)
      empty("gpus-card", !gpus.length)
      const nodes = new Set(gpus.map((gpu) => gpu.node)).size
      say($("gpus-note"), gpus.length ? `${gpus.length} on ${nodes} machine${nodes > 1 ? "s" : ""}` : "")
      fill($("gpus"), gpus, newGpu, (tile, gpu) => writeGpu(tile, gpu, dense))
    },

    requests(data) {
      const requests = rows(data)
      empty("requests-card", !requests.length)
      document.querySelector("#requests thead").hidden = !requests.length
      const running = requests.filter((request) => request.place < 0).length
      say($("requests-note"), requests.length ?
        `${running} running, ${requests.length - running} waiting` : "")
      fill(document.querySelector("#requests tbody"), requests, newRequest, writeRequest)
    },

    decisions(data) { writeLog("decisions", rows(data)) },
    failures(data) { writeLog("failures", rows(data)) },
  }

  function newGpu() {
    const chips = node("span", "chips", ...STAGES.map((stage) => {
      const chip = node("i")
      chip.dataset.stage = stage
      return chip
    }))
    return node("div", "gpu",
      node("div", "", node("span", "id"), node("span", "dop"), chips),
      node("div", "", node("span", "who mono"), node("span", "steps-done faint")),
      bar(),
      node("div", "more", node("span", "used"), node("span", "memory")))
  }
  function writeGpu(tile, gpu, dense) {
    const [head, work, line, more] = tile.children
    const of = (list, stage) => list.some((name) => name.endsWith(`/${stage}`))
    tile.className = `gpu${gpu.stage ? "" : " idle"}${gpu.retiring ? " retiring" : ""}`
    if (gpu.stage) tile.dataset.stage = gpu.stage
    else delete tile.dataset.stage
    tile.dataset.gpu = gpu.gpu
    say(head.children[0], dense ? gpu.gpu : `GPU ${gpu.gpu}`)
    say(head.children[1], gpu.target_dop ? `×${gpu.dop}→${gpu.target_dop}` : gpu.dop > 1 ? `×${gpu.dop}` : "")
    for (const chip of head.children[2].children) {
      const stage = chip.dataset.stage
      chip.className = of(gpu.failed, stage) ? "broken" : of(gpu.resident, stage) ? "held" :
        of(gpu.loading, stage) ? "loading" : ""
    }
    say(work.children[0], gpu.request_id ? short(gpu.request_id, dense ? 6 : 10) : "idle")
    say(work.children[1], gpu.stage === "dit" && !dense ? `${gpu.step}/${gpu.total_steps}` : "")
    widen(line, dense ? gpu.utilisation : gpu.stage === "dit" ? gpu.step / gpu.total_steps : gpu.stage ? 1 : 0)
    const memory = gpu.memory_bytes ? `${giga(gpu.weights_bytes)}/${giga(gpu.memory_bytes)} GB` : ""
    say(more.children[0], `${percent(gpu.utilisation)} busy`)
    say(more.children[1], memory, "weights of the stages it holds, of the GPU's memory")
    tile.title = [
      `GPU ${gpu.gpu}: ${gpu.name}, ${gpu.kind}, ${gpu.node}`,
      `holds ${gpu.resident.join(", ") || "nothing"}`,
      gpu.loading.length ? `loads ${gpu.loading.join(", ")}` : "",
      gpu.failed.length ? `could not load ${gpu.failed.join(", ")}` : "",
      gpu.request_id ? `${NAMES[gpu.stage]} of ${gpu.request_id} on ${gpu.dop} GPUs` : "idle",
      `${percent(gpu.utilisation)} busy`, memory, gpu.retiring ? "its machine is given back" : "",
    ].filter(Boolean).join("\n")
  }

  function newRequest() {
    return node("tr", "",
      node("td", "id mono"), node("td", "faint"),
      node("td", "", node("span", "phase", node("i"), node("span"))),
      node("td", "", node("span", "steps", bar(), node("span", "faint"))),
      node("td", "n"), node("td", "where faint"), node("td", "n"), node("td", "n faint"))
  }
  function writeRequest(row, request) {
    const [id, size_, phase, steps, dop, where, eta, age] = row.children
    const waits = request.place >= 0
    row.dataset.stage = STAGE_OF[request.phase] ?? "dit"
    row.dataset.request = request.request_id
    say(id, request.request_id, request.request_id)
    const frames = request.num_frames > 1 ? ` × ${request.num_frames}` : ""
    say(size_, `${request.width} × ${request.height}${frames}`, request.model)
    phase.firstElementChild.className = waits ? "phase waits" : "phase"
    const ahead = !waits ? "" : request.place ? `, ${request.place} ahead` : ", next"
    const again = request.attempt > 1 ? `, attempt ${request.attempt}` : ""
    say(phase.firstElementChild.children[1], `${WAITS_FOR[request.phase] ?? request.phase}${ahead}${again}`)
    const past = request.phase === "denoised" || request.phase === "decoding"
    const done = past ? request.total_steps : request.step
    widen(steps.firstElementChild.children[0], done / request.total_steps)
    say(steps.firstElementChild.children[1], `${done}/${request.total_steps}`)
    say(dop, request.dop || "–")
    say(where, ranges(request.gpus) || "–")
    say(eta, span(request.eta_s))
    say(age, span(request.age_s))
  }

  function writeLog(name, lines) {
    empty(`${name}-card`, !lines.length)
    const make = () => node("tr", "", node("td", "at"), node("td", "what"),
      node("td", "why", node("span", "mono"), node("span"), node("span", "faint")))
    fill(document.querySelector(`#${name} tbody`), lines, make, (row, line) => {
      const [at, what, why] = row.children
      const where = ranges(line.gpus)
      say(at, clock(line.at))
      say(what, line.what)
      say(why.children[0], short(line.subject), line.subject)
      say(why.children[1], where ? ` on ${where}` : "")
      say(why.children[2], line.reason ? ` ${line.reason}` : "")
    })
  }

  // ------------------------------------------------------------------------------------ colours
  const system = matchMedia("(prefers-color-scheme: dark)")
  const MODES = ["auto", "light", "dark"]
  const asked = new URLSearchParams(location.search).get("theme")
  let mode = MODES.includes(asked) ? asked : remembered() ?? "auto"
  let drawn = []
  function remembered() {
    try { return localStorage.getItem("elastic-dit-theme") } catch { return null }
  }
  function paint() {
    const dark = mode === "dark" || (mode === "auto" && system.matches)
    document.documentElement.dataset.theme = dark ? "dark" : "light"
    const style = getComputedStyle(document.documentElement)
    const [ink, card] = ["--faint", "--card"].map((name) => style.getPropertyValue(name).trim())
    for (const drawing of drawn) {
      for (const axis of [...drawing.below, ...drawing.left]) axis.major_label_text_color = ink
      for (const line of drawing.center) if (line.grid_line_color) line.grid_line_color = ink
      for (const {glyph} of drawing.renderers) glyph.line_color = {value: card}
    }
    if ($("theme")) say($("theme"), mode)
  }
  function next() {
    mode = MODES[(MODES.indexOf(mode) + 1) % MODES.length]
    try { localStorage.setItem("elastic-dit-theme", mode) } catch { /* private window */ }
    paint()
  }
  paint() // before anything is shown
  system.addEventListener("change", paint)

  // -------------------------------------------------------------------------------------- start
  function start(sources, drawings) {
    for (const place of document.querySelectorAll(".key.stages, .key .stages")) {
      place.append(...STAGES.map((stage) => {
        const key = node("span", "", node("i"), NAMES[stage])
        key.dataset.stage = stage
        return key
      }))
    }
    let heard = Date.now()
    for (const [name, source] of sources instanceof Map ? sources : Object.entries(sources)) {
      const redraw = () => { heard = Date.now(); draw[name](source.data instanceof Map ?
        Object.fromEntries(source.data) : source.data) }
      source.connect(source.properties.data.change, redraw)
      redraw()
    }
    drawn = [...(drawings instanceof Map ? drawings.values() : Object.values(drawings))]
    const timeline = drawn.at(-1)
    const look = () => {
      heard = Date.now()
      say($("stand").lastElementChild, clock(timeline.x_range.end))
      const bare = !timeline.y_range.factors.length
      empty("timeline-card", bare)
      $("timeline-card").querySelector(".drawing").hidden = bare
    }
    timeline.x_range.connect(timeline.x_range.change, look)
    look()
    setInterval(() => {
      const lost = Date.now() - heard > STALE_MS
      $("stand").classList.toggle("lost", lost)
      if (lost) say($("stand").lastElementChild, "no news from the scheduler")
    }, 1000)
    $("theme").addEventListener("click", next)
    paint()
    document.body.dataset.live = "yes"
  }
  return {start}
})()
