package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/nvme"
	"github.com/nvme-anywhere/nvmeof/nvme/multipath"
)

// pathText describes the state of a path in one line.
func pathText(p *multipath.PathStatus) string {
	text := fmt.Sprintf("path %s: %s", p.Name(), p.State)
	if p.State == multipath.Live {
		if a := accessText(p); a != "" {
			text += ", " + a
		}
		return text
	}
	if p.Err != nil {
		text += ": " + p.Why()
	}
	return text
}

// accessText describes how a live path leads to the namespaces in use.
func accessText(p *multipath.PathStatus) string {
	var parts []string
	for _, a := range p.Access {
		text := a.State.String()
		switch {
		case a.Err != nil:
			text = "not used: " + strings.TrimPrefix(a.Err.Error(), "nvme: ")
		case a.State == 0:
			text = "not in the ANA log"
		}
		if len(p.Access) > 1 {
			text = fmt.Sprintf("namespace %d %s", a.NSID, text)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ", ")
}

// pathsText is the short form for a live line: how many paths are live, what is wrong with others,
// and how many requests wait for one.
func pathsText(paths []multipath.PathStatus, waiting int) string {
	live, ill := 0, ""
	for i := range paths {
		p := &paths[i]
		switch {
		case p.State != multipath.Live:
			ill += fmt.Sprintf(" (%s %s)", p.Name(), p.State)
		case len(p.Access) > 0 && (p.Access[0].Err != nil || p.Access[0].State != nvme.ANAOptimized):
			ill += fmt.Sprintf(" (%s %s)", p.Name(), accessText(p))
			live++
		default:
			live++
		}
	}
	text := fmt.Sprintf("paths %d/%d%s", live, len(paths), ill)
	if waiting > 0 {
		text += fmt.Sprintf(", %d waiting", waiting)
	}
	return text
}

// printPaths prints what each path did.
func printPaths(w io.Writer, s *multipath.Subsystem) {
	t := cli.NewTable(w, "path", "state", "access", "requests", "retried", "lost", "connected")
	paths := s.Paths()
	for i := range paths {
		p := &paths[i]
		c := p.Counters
		t.AppendRow([]any{p.Name(), p.State, accessText(p), humanize.Comma(int64(c.Ended.Load())),
			humanize.Comma(int64(c.Retried.Load())), c.Losses.Load(), c.Connects.Load()})
	}
	t.Render()
	if waited, failed := s.Counters().Waited.Load(), s.Counters().Failed.Load(); waited+failed > 0 {
		fmt.Fprintf(w, "requests that waited while no path could take them: %s, that failed: %s\n",
			humanize.Comma(int64(waited)), humanize.Comma(int64(failed)))
	}
}

// pathJSON is a path in JSON.
type pathJSON struct {
	Path     string `json:"path"`
	State    string `json:"state"`
	Access   string `json:"access,omitempty"`
	Error    string `json:"error,omitempty"`
	Requests uint64 `json:"requests"`
	Retried  uint64 `json:"retried"`
	Losses   uint64 `json:"losses"`
	Connects uint64 `json:"connects"`
	Failures uint64 `json:"failed_attempts"`
}

func pathsJSON(s *multipath.Subsystem) []pathJSON {
	var all []pathJSON
	paths := s.Paths()
	for i := range paths {
		p := &paths[i]
		c := p.Counters
		j := pathJSON{Path: p.Name(), State: p.State.String(), Access: accessText(p), Requests: c.Ended.Load(), Retried: c.Retried.Load(),
			Losses: c.Losses.Load(), Connects: c.Connects.Load(), Failures: c.Failures.Load()}
		if p.Err != nil {
			j.Error = p.Err.Error()
		}
		all = append(all, j)
	}
	return all
}
