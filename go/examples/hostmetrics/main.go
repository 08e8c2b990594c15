// SPDX-License-Identifier: MIT OR Apache-2.0

// Hostmetrics is a collector with the process metrics of OpenTelemetry's hostmetrics receiver. It
// reads all processes in one request, and writes the metrics to standard output each minute, or as
// OTEL_METRIC_EXPORT_INTERVAL says in milliseconds.
package main

import (
	"context"
	"log"
	"os"
	"os/signal"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	taskdiag "taskdiag.invalid/go"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	exporter, err := stdoutmetric.New()
	if err != nil {
		log.Fatal(err)
	}
	provider := sdk.NewMeterProvider(sdk.WithReader(sdk.NewPeriodicReader(exporter)), sdk.WithCardinalityLimit(0))
	defer provider.Shutdown(context.Background())
	meter := provider.Meter("taskdiag")
	cpu, _ := meter.Float64ObservableCounter("process.cpu.time", metric.WithUnit("s"))
	memory, _ := meter.Int64ObservableUpDownCounter("process.memory.usage", metric.WithUnit("By"))
	threads, _ := meter.Int64ObservableUpDownCounter("process.threads", metric.WithUnit("{threads}"))
	client := taskdiag.Client{MaxAge: time.Second}
	_, err = meter.RegisterCallback(func(ctx context.Context, o metric.Observer) error {
		processes, err := client.Processes(ctx, 0)
		for _, p := range processes {
			name, _ := p.Name()
			owner, _ := p.Username()
			with := metric.WithAttributes(attribute.Int("process.pid", int(p.Pid())), attribute.String("process.command", name),
				attribute.String("process.owner", owner))
			// Kernel threads have no memory. Unknown values are left out.
			if t, err := p.Times(); err == nil {
				o.ObserveFloat64(cpu, t.User, with, metric.WithAttributes(attribute.String("state", "user")))
				o.ObserveFloat64(cpu, t.System, with, metric.WithAttributes(attribute.String("state", "system")))
			}
			if m, err := p.MemoryInfo(); err == nil {
				o.ObserveInt64(memory, int64(m.RSS), with)
			}
			if n, err := p.NumThreads(); err == nil {
				o.ObserveInt64(threads, int64(n), with)
			}
		}
		return err
	}, cpu, memory, threads)
	if err != nil {
		log.Fatal(err)
	}
	<-ctx.Done()
}
