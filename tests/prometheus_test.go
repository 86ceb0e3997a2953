package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// promtool runs promtool, in a directory, and fails the test with its output unless it succeeds.
func promtool(t *testing.T, dir, stdin string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, installed(t, "promtool"), args...)
	cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}

// Alerts are raised by what they are for, and by nothing else.
func TestAlertRules(t *testing.T) {
	t.Parallel()
	const dir = "../metrics/alerts"
	promtool(t, dir, "", "check", "rules", "nvmeof.yml")
	promtool(t, dir, "", "test", "rules", "nvmeof_test.yml")
	rules := readFile(t, dir+"/nvmeof.yml")
	tests := readFile(t, dir+"/nvmeof_test.yml")
	for _, m := range regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(string(rules), -1) {
		if !strings.Contains(string(tests), "alertname: "+m[1]+"\n") {
			t.Errorf("no test of the alert %s", m[1])
		}
	}
}

// prometheus is a server that scrapes.
type prometheus struct {
	t   *testing.T
	url string
	at  time.Time // that queries refer to
}

// startPrometheus starts one that scrapes instances, by their names, and evaluates our alerts.
func startPrometheus(t *testing.T, instances map[string]string) *prometheus {
	t.Helper()
	program := installed(t, "prometheus")
	dir := t.TempDir()
	rules, err := filepath.Abs("../metrics/alerts/nvmeof.yml")
	if err != nil {
		t.Fatal(err)
	}
	conf := "global: {scrape_interval: 500ms, evaluation_interval: 1s}\nrule_files: [" + rules + "]\nscrape_configs:\n- job_name: nvmeof\n  static_configs:\n"
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		conf += fmt.Sprintf("  - {targets: ['%s'], labels: {instance: %s}}\n", instances[name], name)
	}
	writeText(t, filepath.Join(dir, "prometheus.yml"), conf)
	addr := freeAddr(t).String() + ":9090"
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+addr, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	if err := begin(starting, cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if said, _ := os.ReadFile(log.Name()); t.Failed() {
			t.Logf("prometheus says\n%s", tail(string(said)))
		}
	})
	p := &prometheus{t: t, url: "http://" + addr}
	eventually(t, time.Minute, "Prometheus is ready", func() bool {
		r, err := http.Get(p.url + "/-/ready")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
	return p
}

// get asks the interface for its data.
func (p *prometheus) get(path string, to any) error {
	_, body := get(p.t, p.url+"/api/v1/"+path)
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		return fmt.Errorf("%w: %s", err, body)
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return json.Unmarshal(answer.Data, to)
}

// query returns the values of an expression at p.at, without those that are NaN.
func (p *prometheus) query(expr string) (values []float64, err error) {
	var data struct {
		Result []struct{ Value [2]any }
	}
	if err := p.get(fmt.Sprintf("query?query=%s&time=%d", url.QueryEscape(expr), p.at.Unix()), &data); err != nil {
		return nil, err
	}
	for _, r := range data.Result {
		text, _ := r.Value[1].(string)
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	return values, nil
}

// panel is the part of a dashboard's panel that the test uses.
type panel struct {
	Title   string
	Targets []struct{ Expr string }
}

// A real Prometheus scrapes a target and hosts under load: it accepts their metrics, has data for every query of the
// dashboard, and can evaluate every alert.
func TestPrometheus(t *testing.T) {
	t.Parallel()
	installed(t, "prometheus")
	disk := filepath.Join(t.TempDir(), "disk.img")
	tgt := startTarget(t, "--volume", disk, "--size", "64MiB", "--volume", "mem:16MiB", "--metrics", "127.0.0.1:0", "--fault", "loss=0.5%")
	at := map[string]string{"target": strings.TrimPrefix(tgt.metricsURL(t), "http://")}
	for _, transport := range transports {
		at[transport] = freeAddr(t).String() + ":9464"
		tgt.startInit(t, transport, "bench", "--rw", "randrw", "--bs", "32k", "--iodepth", "8", "--rate_iops", "400", "--runtime", "10m",
			"--metrics", at[transport], "--all-paths")
	}
	p := startPrometheus(t, at)
	// Everything below refers to one time at which every scrape had completed: after one that takes too long on a busy
	// machine, there is no data for its instance until the next.
	eventually(t, 2*time.Minute, "everything was scraped twenty times", func() bool {
		p.at = time.Now().Add(-2 * time.Second)
		v, err := p.query(`min(count_over_time(nvmeof_build_info[5m])) >= 20 and count(nvmeof_build_info) == 3 and min(nvmeof_bench_ios_total{op!="trim"}) > 500`)
		return err == nil && len(v) == 1
	})
	for _, addr := range at {
		_, text := get(t, "http://"+addr+"/metrics")
		promtool(t, "", text, "check", "metrics")
	}
	p.checkDashboard(filepath.FromSlash("../metrics/dashboards/nvmeof.json"))
	p.checkRules()
	for expr, least := range map[string]float64{
		`sum(increase(nvmeof_rnic_retransmitted_pkts_total[5m]))`:                                 1,
		`count(nvmeof_controller_info{host_nqn=~"nqn.+"})`:                                        2,
		`count(nvmeof_host_path_up == 1)`:                                                         4,
		`sum(nvmeof_host_path_requests_total) / sum(nvmeof_target_commands_total)`:                0.5,
		`sum(rate(nvmeof_target_sampled_seconds_total{stage="volume"}[5m]))`:                      1e-9,
		`sum(rate(nvmeof_controller_sampled_seconds_total{stage="send"}[5m]))`:                    1e-9,
		`sum(rate(nvmeof_target_sampled_seconds_total{stage="receive", transport="rdma"}[5m]))`:   1e-9,
		`sum(rate(nvmeof_host_bytes_total[5m])) / sum(rate(nvmeof_controller_bytes_total[5m]))`:   0.5,
		`sum(rate(nvmeof_controller_bytes_total[5m])) / sum(rate(nvmeof_target_bytes_total[5m]))`: 0.5,
	} {
		if v, err := p.query(expr); err != nil || len(v) != 1 || v[0] < least {
			t.Errorf("%s: %v, %v; want at least %v", expr, v, err, least)
		}
	}
}

// checkDashboard runs every query of a dashboard. Those that show only values above 0 may return nothing.
func (p *prometheus) checkDashboard(path string) {
	p.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	var d struct{ Panels []panel }
	if err := json.Unmarshal(b, &d); err != nil {
		p.t.Fatal(err)
	}
	variables := strings.NewReplacer("$instance", ".*", "$__rate_interval", "1m", "$__range", "5m")
	queries := 0
	for _, panel := range d.Panels {
		for _, q := range panel.Targets {
			queries++
			v, err := p.query(variables.Replace(q.Expr))
			if err != nil || len(v) == 0 && !strings.HasSuffix(q.Expr, "> 0") {
				p.t.Errorf("%s: %s gives %v, %v", panel.Title, q.Expr, v, err)
			}
		}
	}
	if queries < 50 {
		p.t.Errorf("only %d queries", queries)
	}
	var instances []string
	if err := p.get("label/instance/values?match[]=nvmeof_build_info", &instances); err != nil || len(instances) != 3 {
		p.t.Errorf("the variable instance has the values %v, %v", instances, err)
	}
}

// checkRules checks that Prometheus could evaluate the alerts.
func (p *prometheus) checkRules() {
	p.t.Helper()
	type rule struct{ Name, Health, LastError string }
	var data struct{ Groups []struct{ Rules []rule } }
	eventually(p.t, time.Minute, "all alerts are evaluated", func() bool {
		if err := p.get("rules", &data); err != nil {
			p.t.Fatal(err)
		}
		for _, g := range data.Groups {
			if slices.ContainsFunc(g.Rules, func(r rule) bool { return r.Health == "unknown" }) {
				return false
			}
		}
		return len(data.Groups) > 0
	})
	for _, g := range data.Groups {
		for _, r := range g.Rules {
			if r.Health != "ok" {
				p.t.Errorf("the alert %s: %s %s", r.Name, r.Health, r.LastError)
			}
		}
	}
}
