package metrics

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// dashboard is the part of Grafana's model that the test checks.
type dashboard struct {
	Title      string
	UID        string
	Templating struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID      int
		Type    string
		Title   string
		GridPos struct{ H, W, X, Y int }
		Targets []struct{ RefID, Expr, LegendFormat string }
	}
}

func readDashboard(t *testing.T) *dashboard {
	b, err := os.ReadFile("dashboards/nvmeof.json")
	if err != nil {
		t.Fatal(err)
	}
	d := new(dashboard)
	if err := json.Unmarshal(b, d); err != nil {
		t.Fatal(err)
	}
	return d
}

// labelsOf returns every label of a family, including "le" for a histogram.
func labelsOf(f *dto.MetricFamily) []string {
	var ls []string
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			ls = append(ls, l.GetName())
		}
	}
	if f.GetType() == dto.MetricType_HISTOGRAM {
		ls = append(ls, "le")
	}
	return ls
}

var (
	metricName = regexp.MustCompile(`\b(nvmeof|process|go)_[a-z0-9_]+`)
	matcher    = regexp.MustCompile(`(\w+)=~?"`)
	grouping   = regexp.MustCompile(`by \(([^)]*)\)`)
	variable   = regexp.MustCompile(`\$(\w+)`)
	joined     = regexp.MustCompile(`group_left \(([^)]*)\)`)
	legend     = regexp.MustCompile(`\{\{(\w+)\}\}`)
)

// family returns the family that a query's name belongs to; a histogram is found by its series.
func family(fs map[string]*dto.MetricFamily, name string) *dto.MetricFamily {
	if f := fs[name]; f != nil && f.GetType() != dto.MetricType_HISTOGRAM {
		return f
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, ok := strings.CutSuffix(name, suffix); ok && fs[base] != nil && fs[base].GetType() == dto.MetricType_HISTOGRAM {
			return fs[base]
		}
	}
	return nil
}

// TestDashboard checks every query against the existing metrics and their labels.
func TestDashboard(t *testing.T) {
	p := newPair(t)
	p.use(p.connectRDMA())
	p.use(p.connectTCP())
	p.connectPaths()
	p.set.AddBench(func() Bench { return Bench{} })
	fs := families(t, p.set)
	d := readDashboard(t)
	known := []string{"__rate_interval", "__range"}
	for _, v := range d.Templating.List {
		known = append(known, v.Name)
		checkNames(t, fs, "variable "+v.Name, v.Definition)
	}
	queries := 0
	for _, p := range d.Panels {
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s: no query", p.Title)
		}
		for _, q := range p.Targets {
			queries++
			what := p.Title + " " + q.RefID
			if checkNames(t, fs, what, q.Expr) == 0 {
				t.Errorf("%s: no metric in %s", what, q.Expr)
			}
			if o, c := strings.Count(q.Expr, "("), strings.Count(q.Expr, ")"); o != c {
				t.Errorf("%s: %d ( and %d )", what, o, c)
			}
			for _, v := range variable.FindAllStringSubmatch(q.Expr, -1) {
				if !slices.Contains(known, v[1]) {
					t.Errorf("%s: unknown variable %s", what, v[1])
				}
			}
			checkLegend(t, what, q.Expr, q.LegendFormat)
		}
	}
	if queries < 50 {
		t.Errorf("only %d queries found: is the file read right?", queries)
	}
}

// TestAlertsShown: panels show what alerts count.
func TestAlertsShown(t *testing.T) {
	rules, err := os.ReadFile("alerts/nvmeof.yml")
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			shown = append(shown, metricName.FindAllString(q.Expr, -1)...)
		}
	}
	counters := 0
	for _, name := range metricName.FindAllString(string(rules), -1) {
		if strings.HasSuffix(name, "_total") {
			counters++
			if !slices.Contains(shown, name) {
				t.Errorf("no panel shows %s", name)
			}
		}
	}
	if counters < 10 {
		t.Errorf("only %d counters found: are the alerts read right?", counters)
	}
}

// TestToldApart: queries, legends and alerts that use a number also use what it is unique within: an NSID is unique in a
// subsystem, and several targets may have subsystems of one name (by default they do); a CNTLID is unique in a target.
func TestToldApart(t *testing.T) {
	within := map[string][]string{"nsid": {"instance", "subsystem"}, "cntlid": {"instance"}}
	check := func(what string, names []string) {
		t.Helper()
		for name, needs := range within {
			for _, n := range needs {
				if slices.Contains(names, name) && !slices.Contains(names, n) {
					t.Errorf("%s: %v has %s without %s", what, names, name, n)
				}
			}
		}
	}
	groups := func(what, text string) {
		t.Helper()
		for _, g := range grouping.FindAllStringSubmatch(text, -1) {
			check(what, strings.Split(g[1], ", "))
		}
	}
	for _, p := range readDashboard(t).Panels {
		for _, q := range p.Targets {
			groups(p.Title, q.Expr)
			check(p.Title+": its legend", listed(legend, q.LegendFormat))
		}
	}
	rules, err := os.ReadFile("alerts/nvmeof.yml")
	if err != nil {
		t.Fatal(err)
	}
	groups("alerts", string(rules))
}

// checkNames checks the metrics of an expression and the labels that it uses: each metric must have those by which it
// is selected or grouped, and one of them those that another takes over. It returns the number of metrics.
func checkNames(t *testing.T, fs map[string]*dto.MetricFamily, what, expr string) int {
	t.Helper()
	names := metricName.FindAllString(expr, -1)
	var all []string
	for _, name := range names {
		f := family(fs, name)
		if f == nil {
			t.Errorf("%s: there is no metric %s", what, name)
			continue
		}
		has := append(labelsOf(f), "instance")
		all = append(all, has...)
		for _, l := range grouped(expr) {
			if !slices.Contains(has, l) {
				t.Errorf("%s: %s has no label %s", what, name, l)
			}
		}
	}
	for _, l := range labelsUsed(expr) {
		if !slices.Contains(all, l) {
			t.Errorf("%s: no metric of it has a label %s", what, l)
		}
	}
	return len(names)
}

// labelsUsed returns the labels that an expression matches, groups by, or takes over from another metric.
func labelsUsed(expr string) []string {
	ls := append(listed(grouping, expr), listed(joined, expr)...)
	for _, m := range matcher.FindAllStringSubmatch(expr, -1) {
		ls = append(ls, m[1])
	}
	return ls
}

// grouped returns the labels that an expression groups by, if it groups once.
func grouped(expr string) []string {
	if strings.Contains(expr, " on (") {
		return nil
	}
	return listed(grouping, expr)
}

// listed returns the names in the lists that re finds.
func listed(re *regexp.Regexp, expr string) (ls []string) {
	for _, m := range re.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(m[1], ",") {
			if l = strings.TrimSpace(l); l != "" {
				ls = append(ls, l)
			}
		}
	}
	return ls
}

// checkLegend checks that a legend names labels that remain after grouping.
func checkLegend(t *testing.T, what, expr, format string) {
	t.Helper()
	if !strings.Contains(expr, "by (") {
		return
	}
	for _, l := range legend.FindAllStringSubmatch(format, -1) {
		if !slices.Contains(labelsUsed(expr), l[1]) {
			t.Errorf("%s: the legend's %s is summed away", what, l[1])
		}
	}
}

// TestLayout checks that panels don't overlap and have unique numbers.
func TestLayout(t *testing.T) {
	d := readDashboard(t)
	if d.Title == "" || d.UID == "" {
		t.Error("a dashboard needs a title and a UID")
	}
	ids := map[int]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] || p.Title == "" {
			t.Errorf("panel %d %q: number or title", p.ID, p.Title)
		}
		ids[p.ID] = true
		a := p.GridPos
		if a.W <= 0 || a.H <= 0 || a.X+a.W > 24 {
			t.Errorf("%s: at %+v", p.Title, a)
		}
		for _, q := range d.Panels[:i] {
			b := q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, q.Title)
			}
		}
	}
}
