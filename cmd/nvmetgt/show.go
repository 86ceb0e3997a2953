package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/dustin/go-humanize/english"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/nvme-anywhere/nvmeof/blockdev"
	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/control"
)

// showStatus writes the status of a target, for people.
func showStatus(w io.Writer, st *control.Status) {
	draining := ""
	if st.Draining {
		draining = "; draining: hosts are refused until resume"
	}
	fmt.Fprintf(w, "listening on %s; %s%s\n", strings.Join(st.Listen, ", "), english.Plural(st.Connections, "connection", ""), draining)
	for i := range st.Subsystems {
		s := &st.Subsystems[i]
		if len(s.Namespaces) == 0 && len(s.Controllers) == 0 {
			continue
		}
		fmt.Fprintf(w, "\n%s\n", s.NQN)
		showNamespaces(w, s.Namespaces)
		showControllers(w, s.Controllers)
	}
	showANA(w, st.ANA)
}

// showANA writes the ANA groups that are not optimized everywhere.
func showANA(w io.Writer, all []control.ANA) {
	if !slices.ContainsFunc(all, func(a control.ANA) bool { return a.State != "optimized" }) {
		return
	}
	fmt.Fprintln(w)
	t := cli.NewTable(w, "ANA group", "endpoint", "state")
	for _, a := range all {
		t.AppendRow(table.Row{a.Group, a.Listen, a.State})
	}
	t.Render()
}

func showNamespaces(w io.Writer, all []control.Namespace) {
	if len(all) == 0 {
		return
	}
	t := cli.NewTable(w, "namespace", "volume", "size", "reads", "writes", "read", "written", "errors")
	for i := range all {
		n := &all[i]
		name := n.Kind
		if n.Path != "" {
			name += " " + n.Path
		}
		t.AppendRow(table.Row{
			n.NSID, name, blockdev.FormatSize(int64(n.Size)), humanize.Comma(int64(n.IO.Reads)), humanize.Comma(int64(n.IO.Writes)),
			humanize.IBytes(n.IO.ReadBytes), humanize.IBytes(n.IO.WrittenBytes), n.IO.Errors,
		})
	}
	t.Render()
}

func showControllers(w io.Writer, all []control.Controller) {
	if len(all) == 0 {
		return
	}
	t := cli.NewTable(w, "controller", "host", "from", "since", "authenticated", "queues", "in flight", "commands")
	for i := range all {
		c := &all[i]
		inFlight, commands := 0, uint64(0)
		for j := range c.Queues {
			q := &c.Queues[j]
			inFlight += q.InFlight
			commands += q.IO.Reads + q.IO.Writes + q.IO.Others
		}
		t.AppendRow(table.Row{
			c.CNTLID, c.HostNQN, c.Transport + " " + c.Remote, time.Since(c.Since).Round(time.Second), authenticated(c.Authentication),
			len(c.Queues), inFlight, humanize.Comma(int64(commands)),
		})
	}
	t.Render()
}

// authenticated describes how a host was authenticated, if it was.
func authenticated(a *control.Authentication) string {
	switch {
	case a == nil:
		return "no"
	case a.Bidirectional:
		return a.Hash + ", " + a.DHGroup + ", both ways"
	}
	return a.Hash + ", " + a.DHGroup
}
