// The one thing of Node.js 22 that @platformatic/kafka needs here, for Node.js 20.
Promise.withResolvers ??= function () {
  let resolve, reject
  const promise = new this((accept, refuse) => {
    resolve = accept
    reject = refuse
  })
  return { promise, resolve, reject }
}
