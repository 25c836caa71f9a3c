// Produces and consumes with @platformatic/kafka. Arguments: bootstrap server, client id, topic, group, number of records.
import './node20.mjs'
import { Admin, Consumer, MessagesStreamModes, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const [server, clientId, topic, groupId, count] = process.argv.slice(2)
const common = { clientId, bootstrapBrokers: [server] }

const admin = new Admin(common)
await admin.createTopics({ topics: [topic], partitions: 2, replicas: 1 })
await admin.close()

const producer = new Producer({ ...common, serializers: stringSerializers })
const messages = Array.from({ length: Number(count) }, (_, i) => ({ topic, key: `k${i}`, value: `v${i}`, headers: { h: `h${i}` } }))
await producer.send({ messages })
await producer.close()

const consumer = new Consumer({ ...common, groupId, deserializers: stringDeserializers })
const stream = await consumer.consume({ topics: [topic], mode: MessagesStreamModes.EARLIEST, autocommit: true, maxWaitTime: 100 })
const got = []
for await (const { partition, offset, key, value, headers } of stream) {
  got.push([partition, Number(offset), key, value, headers.get('h')])
  if (got.length === messages.length) break
}
await consumer.close(true)
console.log(JSON.stringify(got))
