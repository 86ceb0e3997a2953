package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nvme-anywhere/nvmeof/internal/cli"
	"github.com/nvme-anywhere/nvmeof/internal/report"
	"github.com/nvme-anywhere/nvmeof/internal/version"
)

// pageFile is the file of --report; nil if the flag isn't given.
type pageFile struct {
	f       *os.File
	path    string
	written bool
}

// createPage creates the file before anything is measured: if it can't be written at the end, that should be an
// error at once.
func createPage(path string) (*pageFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, cli.CreateError("--report", path, err)
	}
	return &pageFile{f: f, path: path}, nil
}

func (p *pageFile) write(page *report.Page) error {
	if p == nil {
		return nil
	}
	w := bufio.NewWriter(p.f)
	err := page.Write(w)
	if err == nil {
		err = w.Flush()
	}
	if err != nil {
		return cli.FileError("--report", p.path, err)
	}
	p.written = true
	return nil
}

// close closes the file after work that ended with err, and removes it if there is no page in it.
func (p *pageFile) close(err error) error {
	if p == nil {
		return err
	}
	if closeErr := p.f.Close(); closeErr != nil {
		err, p.written = errors.Join(err, cli.FileError("--report", p.path, closeErr)), false
	}
	if !p.written {
		_ = os.Remove(p.path)
	}
	return err
}

// page returns the content of the page for a campaign.
func (k *campaign) page(works []*report.Work) *report.Page {
	p := &report.Page{
		Title:   strings.Join(k.names, " and ") + ": " + works[0].Name,
		Command: commandLine(), Made: k.began, Works: works,
	}
	if len(works) > 1 {
		p.Title = strings.Join(k.names, " and ") + fmt.Sprintf(": %d loads", len(works))
	}
	fact := func(name, format string, a ...any) {
		p.Facts = append(p.Facts, report.Fact{Name: name, Value: fmt.Sprintf(format, a...)})
	}
	for i, name := range k.names {
		c := k.paths[i].sessions[0]
		id, limits := c.Identify(), c.Limits()
		fact("path "+name, "%s; controllers: %d; I/O queues of each: %d, of %d entries", k.endpoint(i), len(k.paths[i].sessions), limits.Queues, limits.QueueSize)
		fact("target", "%s, firmware %s, %s", id.ModelNumber(), id.FirmwareRevision(), c.Config().SubNQN)
	}
	fact("repeats", "%d of each, the paths in turns; figures are their medians", k.f.campaign.repeats)
	fact("ratios", "one of each repeat; shown is their median, and their range")
	fact("latency", "from when an operation was begun, or was due where there is a rate, to its completion")
	if k.done < k.all {
		fact("ended early", "after %d of %d runs; figures are of the repeats that were complete", k.done, k.all)
	}
	for _, crowded := range k.json.Warnings {
		fact("queues", "%s", crowded)
	}
	for _, late := range behind(works) {
		fact("behind the rate", "%s", late)
	}
	fact("machine", "%d processors%s, Linux %s, Go %s", runtime.NumCPU(), processorName(), kernelRelease(), strings.TrimPrefix(runtime.Version(), "go"))
	fact("nvmeinit", "%s", version.Version)
	fact("took", "%v", time.Since(k.began).Round(time.Second))
	return p
}

// endpoint describes where a path leads.
func (k *campaign) endpoint(path int) string {
	s := k.paths[path].sessions[0]
	return fmt.Sprintf("%s, %s", s.fabric.Type(), s.Remote())
}

// commandLine returns approximately what the user typed.
func commandLine() string {
	words := append([]string{"nvmeinit"}, os.Args[1:]...)
	for i, w := range words {
		if w == "" || strings.ContainsAny(w, " \t\n'\"$&|;<>()*?[]\\") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// processorName returns the model of the first processor, preceded by a comma, or "" if the kernel doesn't report
// it.
func processorName() string {
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return ", " + strings.TrimSpace(value)
		}
	}
	return ""
}

func kernelRelease() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "?"
	}
	return unix.ByteSliceToString(u.Release[:])
}
