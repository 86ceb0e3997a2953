package main

import (
	"fmt"
	"os"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// newTable makes a table whose columns from the third on are numbers.
func newTable(title string, header ...any) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(os.Stdout)
	t.SetStyle(table.StyleLight)
	t.SetTitle(title)
	t.AppendHeader(table.Row(header))
	var right []table.ColumnConfig
	for i := 3; i <= len(header); i++ {
		right = append(right, table.ColumnConfig{Number: i, Align: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	return t
}

// appendCompared adds variants, each compared with the first.
func appendCompared(t table.Writer, path string, all []*variant) {
	first := all[0].iops()
	for _, v := range all {
		t.AppendRow(table.Row{path, v.name, fmt.Sprintf("%.0f", v.iops()),
			fmt.Sprintf("%.2f + %.2f", v.hostCPU(), v.targetCPU()), fmt.Sprintf("%.2f", v.iops()/first)})
	}
	t.AppendSeparator()
}
