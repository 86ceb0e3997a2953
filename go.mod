module github.com/nvme-anywhere/nvmeof

go 1.25.0
