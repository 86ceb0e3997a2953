package tests

import (
	"encoding/json"
	"image/color"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nvme-anywhere/nvmeof/metrics"
)

// A browser shows the page of a target under load, and of a host that loads it: their current activity, with nothing
// from elsewhere, in light and dark.
func TestStatusPage(t *testing.T) {
	browser := installed(t, "chromium")
	disk := filepath.Join(t.TempDir(), "disk.img")
	tgt := startTarget(t, "--volume", disk, "--size", "64MiB", "--volume", "mem:16MiB", "--metrics", "127.0.0.1:0", "--fault", "loss=0.5%")
	const name = "nqn.2026-11.org.example:<b>bold</b>&amp;"
	hostAt, trimmerAt := freeAddr(t).String()+":9464", freeAddr(t).String()+":9464"
	load := args("--bs 16k --iodepth 4 --rate_iops 300 --runtime 10m")
	tgt.startInit(t, "rdma", "bench", append(load, "--rw", "randrw", "--hostnqn", name, "--metrics", hostAt)...)
	tgt.startInit(t, "tcp", "bench", append(load, "--rw", "randtrimwrite", "--metrics", trimmerAt)...)
	target, host, trimmer := tgt.metricsURL(t)+"/", "http://"+hostAt+"/", "http://"+trimmerAt+"/"
	eventually(t, cliTimeout, "both hosts work", func() bool {
		_, status := get(t, target+"status.json")
		return strings.Count(status, `"name":"nqn.`) == 2
	})
	eventually(t, cliTimeout, "one trims", func() bool { return completed(t, trimmerAt, "trim") > 0 })
	for page, want := range map[string][]string{
		target: {
			`<h1 id="program">nvmetgt`, `id="state" class="">ready`, disk, "mem", "64.0 MiB", "16.0 MiB", "% of packets again",
			`&lt;b&gt;bold&lt;/b&gt;&amp;amp;`, `id="connected">2<`,
		},
		host: {
			`<h1 id="program">nvmeinit`, testNQN, "rdma " + tgt.addr.String(), `id="connected">1<`, `id="trimbox" hidden`,
		},
		trimmer: {`<h1 id="program">nvmeinit`, "tcp " + tgt.addr.String(), `id="trimbox"><`},
	} {
		// A host updates its latencies and trims only once a second.
		live := []string{"read", "write", "latency"}
		switch page {
		case host:
			live = live[:2]
		case trimmer:
			live = live[1:2]
		}
		shown := liveText(t, browser, page, live)
		for _, w := range want {
			if !strings.Contains(shown, w) {
				t.Errorf("%s: no %q in\n%s", page, w, shown)
			}
		}
	}
	checkColours(t, browser, target)
}

// If the program is started again, its counters begin anew, and the page computes no rates from those of the one before.
func TestStatusPageRestarted(t *testing.T) {
	t.Parallel()
	browser := installed(t, "chromium")
	program, looks := metrics.New().Handler(), 0
	at := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status.json" {
			program.ServeHTTP(w, r)
			return
		}
		answer := httptest.NewRecorder()
		program.ServeHTTP(answer, r)
		var status map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
			t.Error(err)
		}
		looks++
		switch looks {
		case 1, 2: // of the idle one before
			status["seconds"] = 100 + looks
		case 3:
			status["seconds"], status["io"].(map[string]any)["read"].(map[string]any)["ops"] = 1, 1000
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		if err := json.NewEncoder(w).Encode(status); err != nil {
			t.Error(err)
		}
	}))
	dom, _ := browse(t, browser, at.URL, "--virtual-time-budget=10000", "--dump-dom")
	at.Close()
	if !strings.Contains(dom, ">no answer<") || !strings.Contains(dom, `id="reads">0 a second<`) {
		t.Errorf("after %d looks it shows\n%s", looks, dom)
	}
}

// liveText returns the text of a page once it shows current activity. The browser's time passes faster than that of the
// programs, which may have done nothing since the page last looked.
func liveText(t *testing.T, browser, page string, live []string) string {
	t.Helper()
	var dom string
	eventually(t, time.Minute, page+" shows what happens now", func() bool {
		var said string
		dom, said = browse(t, browser, page, "--virtual-time-budget=10000", "--dump-dom")
		if strings.Contains(said, "CONSOLE") {
			t.Errorf("%s: the browser complains: %s", page, said)
		}
		for _, id := range live {
			if !regexp.MustCompile(`id="` + id + `">[0-9.]*[1-9][0-9.]* ([KMG]iB/s|µs|ms|s)<`).MatchString(dom) {
				return false
			}
		}
		return regexp.MustCompile(`class="rl" points="11\d,`).MatchString(dom)
	})
	_, shown, _ := strings.Cut(dom, "<body>")
	shown, _, _ = strings.Cut(shown, "<script>")
	return shown
}

// checkColours looks for the colours of lines and background in either scheme.
func checkColours(t *testing.T, browser, page string) {
	t.Helper()
	for scheme, colours := range map[string][]color.RGBA{
		"1": {{0x25, 0x63, 0xeb, 255}, {0xd9, 0x58, 0x0d, 255}, {0xf6, 0xf7, 0xf9, 255}}, // light
		"0": {{0x6e, 0xa8, 0xfe, 255}, {0xff, 0x9f, 0x5a, 255}, {0x11, 0x15, 0x1d, 255}}, // dark
	} {
		shot := filepath.Join(t.TempDir(), "shot.png")
		browse(t, browser, page, "--virtual-time-budget=5000", "--blink-settings=preferredColorScheme="+scheme, "--screenshot="+shot)
		seen := coloursOf(t, shot)
		for _, c := range colours {
			if seen[c] < 100 {
				t.Errorf("scheme %s: %d points of the colour %v", scheme, seen[c], c)
			}
		}
	}
}

// The page requests nothing except from its own server.
func TestStatusPageAlone(t *testing.T) {
	t.Parallel()
	tgt := startTarget(t, "--volume", "mem:16MiB", "--metrics", "127.0.0.1:0")
	_, page := get(t, tgt.metricsURL(t)+"/")
	found := regexp.MustCompile(`(?:src|href)="[^"]*"|https?://`).FindAllString(page, -1)
	if want := []string{`href="data:,"`, `href="/metrics"`, `href="/healthz"`}; !slices.Equal(found, want) {
		t.Errorf("it names %q, want %q", found, want)
	}
	if len(page) > 16<<10 {
		t.Errorf("it has %d bytes", len(page))
	}
}
