package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBenchCompareInterrupted: what a comparison has measured when it is interrupted isn't lost.
func TestBenchCompareInterrupted(t *testing.T) {
	t.Parallel()
	addr := freeAddr(t)
	tgt := startTargetAt(t, addr, "--volume", "mem:16MiB", "--metrics", addr.String()+":"+metricsPort)
	dir := t.TempDir()
	jobs, page := filepath.Join(dir, "two.fio"), filepath.Join(dir, "out.html")
	writeText(t, jobs, "[short]\nrw=randread\nruntime=50ms\n[long]\nstonewall\nrw=randwrite\nruntime=10m\n")
	written := func() float64 {
		return tgt.scrape(t)[`nvmeof_namespace_bytes_total{nsid="1",op="write",subsystem="`+testNQN+`"}`]
	}
	for _, output := range []string{"normal", "json"} {
		before := written()
		p := start(t, "nvmeinit", append(args("bench --compare rdma,tcp --repeats 1 --depths 1 -o "+output+" -s "+nvmePort), "-a", addr.String(), "--report", page, jobs)...)
		eventually(t, cliTimeout, "the second phase", func() bool { return written() > before })
		p.signal(syscall.SIGINT)
		r := p.result(t, cliTimeout)
		if r.code != exitInterrupted || !strings.Contains(r.stdout, "short: randread 4.0 KiB") || strings.Contains(r.stdout, "long: randwrite") {
			t.Errorf("exit code %d: %s%s", r.code, r.stdout, r.stderr)
		}
		if output == "json" && !json.Valid([]byte(r.stdout)) {
			t.Errorf("no JSON: %s", r.stdout)
		}
		if b := string(readFile(t, page)); !strings.Contains(b, "short: randread 4.0 KiB") || !strings.Contains(b, "after 2 of 4 runs") {
			t.Errorf("the page lacks what was measured, or that it isn't all: %d bytes", len(b))
		}
		if err := os.Remove(page); err != nil {
			t.Fatal(err)
		}
	}
	tgt.stop(t)
}

// The same work over both transports, in turns: one table with ratios, the same as JSON, and a
// page.
func TestBenchCompare(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB")
	page := filepath.Join(t.TempDir(), "out.html")
	to := []string{"bench", "-a", tgt.addr.String(), "-s", nvmePort, "--rw", "randread", "--runtime", "50ms"}
	r := nvmeinit(t, cliTimeout, append(to, args("--compare rdma,tcp -g --repeats 3 --depths 1,8 --report "+page)...)...) // RDMA has no digests
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	for _, want := range []string{"rdma / tcp", "randread 4.0 KiB", "IOPS", "latency p99.9", "processor an I/O", "medians of 3 repeats"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("the table has no %q:\n%s", want, r.stdout)
		}
	}
	if n := strings.Count(r.stdout, "×"); n != 2*7 {
		t.Errorf("%d ratios, want 7 figures at 2 depths:\n%s", n, r.stdout)
	}

	// A page is never written over something else.
	r = nvmeinit(t, cliTimeout, append(to, "--compare", "rdma,tcp", "--report", page)...)
	checkLine(t, r, "nvmeinit", mistake{code: exitFailure, says: []string{"--report", "exists already"}})

	// For each path the report says what it didn't keep up with.
	late := filepath.Join(t.TempDir(), "late.html")
	r = nvmeinit(t, cliTimeout, append(to, args("--compare rdma,tcp --repeats 1 --rate_iops 10m --report "+late)...)...)
	b, err := os.ReadFile(late)
	if n, m := strings.Count(r.stdout, "behind the rate: "), strings.Count(string(b), "<dt>behind the rate</dt>"); n != 2 || m != 2 {
		t.Errorf("%d and %d paths are behind the rate, want both: %v, %s\n%s", n, m, err, r.stdout, r.stderr)
	}

	// And what had no room in its queues.
	crowded := filepath.Join(t.TempDir(), "crowded.html")
	r = nvmeinit(t, cliTimeout, append(to, args("--compare rdma,tcp --repeats 1 --depths 8 -Q 4 --report "+crowded)...)...)
	b, err = os.ReadFile(crowded)
	if n, m := strings.Count(r.stderr, "raise -Q 4"), strings.Count(string(b), "<dt>queues</dt>"); n != 2 || m != 2 {
		t.Errorf("%d and %d paths are crowded, want both: %v, %s", n, m, err, r.stderr)
	}

	r = nvmeinit(t, cliTimeout, append(to, "--compare", "tcp,tcp://"+tgt.addr.String()+":"+nvmePort,
		"--repeats", "2", "-o", "json+", "--percentile_list", "50:99:99.9")...)
	var out struct {
		Jobs []struct {
			Path   string `json:"nvmeinit_path"`
			Repeat int    `json:"nvmeinit_repeat"`
			Read   fioSide
		}
		Compare []struct {
			Figure string
			Depth  int `json:"iodepth"`
			Median map[string]float64
			Ratios []struct{ Median, Min, Max float64 }
		} `json:"nvmeinit_compare"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil {
		t.Fatalf("%v: %s%s", err, r.stdout, r.stderr)
	}
	readFio(t, []byte(r.stdout))
	order := ""
	for _, j := range out.Jobs {
		order += strings.Repeat("I", j.Repeat) + map[bool]string{true: "a ", false: "b "}[j.Path == "tcp"]
	}
	if order != "Ia Ib IIb IIa " {
		t.Errorf("the paths ran in the order %s", order)
	}
	if len(out.Compare) != 7 {
		t.Fatalf("%d figures are compared", len(out.Compare))
	}
	c := out.Compare[0]
	first, second := out.Jobs[0].Read.IOPS/out.Jobs[1].Read.IOPS, out.Jobs[3].Read.IOPS/out.Jobs[2].Read.IOPS
	if q := c.Ratios[0]; c.Figure != "IOPS" || c.Depth != 1 || differ(q.Min, min(first, second)) ||
		differ(q.Max, max(first, second)) || differ(q.Median, (first+second)/2) {
		t.Errorf("%+v, want ratios of %v and %v", c, first, second)
	}
}

// differ reports whether two figures differ by more than rounding.
func differ(a, b float64) bool { return a-b > 1e-6*b || b-a > 1e-6*b }

func TestBenchCompareFlags(t *testing.T) {
	t.Parallel()
	page := filepath.Join(t.TempDir(), "page.html")
	bench := func(flags string) []string { return append(args("bench -a 127.0.0.1"), args(flags)...) }
	check(t, "nvmeinit", []mistake{
		{bench("--compare rdma,udp"), exitUsage, []string{"--compare", `"udp"`, "rdma://ADDRESS"}},
		{bench("--compare rdma,tcp -t tcp"), exitUsage, []string{"-t tcp", "--compare rdma,tcp", "one of them"}},
		{bench("--compare tcp,tcp,tcp,tcp,tcp,tcp,tcp"), exitUsage, []string{"--compare", "at most 6"}},
		{bench("-t tcp --repeats -1 --depths 1"), exitUsage, []string{"--repeats -1"}},
		{bench("-t tcp --repeats -1"), exitUsage, []string{"--repeats -1"}},
		{bench("-t tcp --depths 1,0"), exitUsage, []string{"--depths", "iodepth=0"}},
		{bench("-t tcp --depths some"), exitUsage, []string{"--depths", `"some"`}},
		{bench("-t tcp --report /nowhere/page.html"), exitFailure, []string{"--report /nowhere/page.html", "no such file"}},
		{bench("-t tcp --repeats 2 --pcap x"), exitUsage, []string{"--pcap", "a single run"}},
		{bench("-t tcp -s 1 --report " + page), exitFailure, []string{"tcp://127.0.0.1:1", "connection refused"}},
	})
	if _, err := os.Stat(page); err == nil {
		t.Error("a run that failed left a page, in the way of the next attempt")
	}
}

// A browser shows the page: its script runs without errors and shows values under the pointer, and both colours of the
// plots are visible, light and dark.
func TestBenchPage(t *testing.T) {
	browser := installed(t, "chromium")
	tgt := startTarget(t, "--volume", "mem:16MiB")
	page := filepath.Join(t.TempDir(), "out.html")
	r := nvmeinit(t, cliTimeout, append(args("bench --compare rdma,tcp --repeats 2 --depths 1,8 --rw randread --runtime 100ms"),
		"-a", tgt.addr.String(), "-s", nvmePort, "--report", page)...)
	if r.code != 0 {
		t.Fatal(r.stderr)
	}
	b := readFile(t, page)
	probe := `<script>
		const first = document.querySelector("svg.chart"), at = first.getBoundingClientRect();
		first.dispatchEvent(new PointerEvent("pointermove", {clientX: at.left + at.width / 2, clientY: at.top + 50}));
		const shown = document.getElementById("tip");
		if (shown.hidden || !/depth .*rdma/.test(shown.textContent)) console.error("no values under the pointer");
		document.documentElement.dataset.theme = "light";
		document.getElementById("theme").click();
	</script>`
	dir := t.TempDir()
	dark := filepath.Join(dir, "dark.html")
	writeText(t, dark, string(b)+probe)
	for path, colours := range map[string][]color.RGBA{
		page: {{0x25, 0x63, 0xeb, 255}, {0xd9, 0x58, 0x0d, 255}, {0xf6, 0xf7, 0xf9, 255}},
		dark: {{0x6e, 0xa8, 0xfe, 255}, {0xff, 0x9f, 0x5a, 255}, {0x11, 0x15, 0x1d, 255}},
	} {
		shot := filepath.Join(dir, "shot.png")
		if _, said := browse(t, browser, "file://"+path, "--screenshot="+shot); strings.Contains(said, "CONSOLE") {
			t.Errorf("%s: the browser complains: %s", filepath.Base(path), said)
		}
		seen := coloursOf(t, shot)
		for _, c := range colours {
			if seen[c] < 100 {
				t.Errorf("%s: %d points of the colour %v", filepath.Base(path), seen[c], c)
			}
		}
	}
}

// browse has the browser do something with a page, and returns what it wrote, and what it had to say.
func browse(t *testing.T, browser, page string, flags ...string) (wrote, said string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, append(flags, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--enable-logging=stderr", "--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage",
		"--window-size=1280,1800", "--user-data-dir="+t.TempDir(), page)...)
	cmd.WaitDelay = time.Minute // its helpers hold the output open, and end later where the machine is busy
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, errs.String())
	}
	return out.String(), errs.String()
}

func coloursOf(t *testing.T, path string) map[color.RGBA]int {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[color.RGBA]int{}
	bounds := img.Bounds()
	if bounds.Size() != image.Pt(1280, 1800) {
		t.Errorf("the picture has %v", bounds.Size())
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			seen[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return seen
}
